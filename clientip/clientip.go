// Package clientip finds the address of the client of an HTTP request, for limits by address.
//
//	handler := httplimit.Handler(limiter, clientip.RemoteAddr, mux)
//
// The peer is the other end of the connection. Without a proxy in front of the server, the client
// is the peer: [RemoteAddr]. Behind proxies the peer is a proxy, and the proxies write the client's
// address into a header. The client can send that header too. Proxies append to it, so it is read
// from the right: the first address that is not a proxy's is the client's, and the client may have
// written everything to its left. Which header to read, and where in it, depends on the proxies;
// there is no default:
//
//	proxy                              setting
//	none                               RemoteAddr
//	nginx with
//	  $proxy_add_x_forwarded_for       XForwardedFor(prefixes of the nginx servers)
//	nginx with X-Real-IP $remote_addr  Header("X-Real-IP", prefixes of the nginx servers)
//	Caddy                              XForwardedFor(prefixes of the Caddy servers)
//	Traefik                            XForwardedFor(prefixes of the Traefik servers)
//	one load balancer that appends,
//	  at changing addresses            XForwardedForAt(1)
//	a CDN that appends, in front of
//	  such a load balancer             XForwardedForAt(2)
//	Cloudflare, directly               Header("CF-Connecting-IP", prefixes of Cloudflare)
//	Cloudflare, then nginx             XForwardedFor(prefixes of nginx and of Cloudflare)
//	a proxy that writes RFC 7239       Forwarded(prefixes of the proxies)
//	chi's ClientIPFrom… middleware     FromContext(middleware.GetClientIP)
//
// [XForwardedFor], [Forwarded] and [Header] read the header only if the peer is a trusted proxy;
// for Header, the proxy also has to replace what the client sent. [XForwardedForAt] and
// [ForwardedAt] trust every peer. Use them only if nothing but the proxies can connect to the
// server. [FromContext] is as safe as the middleware whose result it reads.
//
// # Keys
//
// The key of an IPv4 address is the address; [Source.WithIPv4Prefix] makes it a network. The key of
// an IPv6 address is its /64 network, the smallest that a subscriber gets; [Source.WithIPv6Prefix]
// changes the length. All spellings of an address have the same key: ports, brackets and zones do
// not matter, and an IPv4-mapped IPv6 address counts as the IPv4 address. So does an address of
// NAT64 in 64:ff9b::/96, also where it is compared with trusted prefixes. In 64:ff9b:1::/48 the
// place of the IPv4 address depends on the network, so these addresses count as IPv6.
//
// The client is unknown if its place in the header is missing or does not hold an IP address.
// Addresses further to the left are not used instead. All requests from unknown clients have the
// key [Unknown], so they share one limit.
package clientip

import (
	"cmp"
	"context"
	"net/http"
	"net/netip"
)

// Unknown is the key of all requests from unknown clients.
const Unknown = "unknown"

// DefaultIPv6Prefix is the length in bits of the IPv6 networks that have one key each, unless
// [Source.WithIPv6Prefix] sets another.
const DefaultIPv6Prefix = 64

// RemoteAddr returns the key of the peer, from [http.Request.RemoteAddr]. It is Key of the zero
// [Source]. The error is always nil.
func RemoteAddr(r *http.Request) (string, error) { return Source{}.Key(r) }

// AddrKey returns the key of an address that the caller has found, such as the peer of a gRPC call,
// or [Unknown] for the zero Addr. An IPv6 address has the key of its network of the given length in
// bits; bits do not matter for IPv4. AddrKey panics if bits is not between 1 and 128.
func AddrKey(addr netip.Addr, bits int) string {
	checkBits(bits)
	return key(plain(addr), ipv4Bits, bits)
}

// A Source is where the address of a client is found. The zero Source is the peer,
// [http.Request.RemoteAddr]. A Source is immutable and safe for concurrent use.
type Source struct {
	find  func(*http.Request) netip.Addr // nil for the peer
	bits  int                            // of IPv6; 0 for DefaultIPv6Prefix
	bits4 int                            // 0 for ipv4Bits
}

// XForwardedFor returns the Source for proxies that append to X-Forwarded-For; trusted are the
// networks of these proxies. The client is the right-most address in the header that is not
// trusted. The peer counts as the address to the right of the header, so if the peer is not
// trusted, it is the client. A peer on a Unix socket is always trusted. If all addresses are
// trusted, the client is the left-most.
//
// The time to look up an address grows with the logarithm of the number of prefixes. XForwardedFor
// panics if a prefix is not valid or contains all IPv4 or IPv6 addresses.
func XForwardedFor(trusted ...netip.Prefix) Source {
	return rightmostUntrusted("X-Forwarded-For", lastField, trusted)
}

// XForwardedForAt returns the Source of the n-th address from the right in X-Forwarded-For, for n
// proxies that append one address each; 1 is the right-most. It panics if n is less than 1.
//
// A client that can bypass a proxy can choose its own address.
func XForwardedForAt(n int) Source {
	return at("X-Forwarded-For", lastField, n)
}

// Forwarded is [XForwardedFor] for the parameter "for" of the header Forwarded (RFC 7239). The
// identifier "unknown" and obfuscated identifiers, such as "_hidden", are not addresses.
func Forwarded(trusted ...netip.Prefix) Source {
	return rightmostUntrusted("Forwarded", lastElement, trusted)
}

// ForwardedAt is [XForwardedForAt] for the header Forwarded.
func ForwardedAt(n int) Source {
	return at("Forwarded", lastElement, n)
}

// Header returns the Source of the address in a header, such as X-Real-IP or CF-Connecting-IP, that
// proxies set on each request in place of what the client sent; trusted are the networks of these
// proxies. If the peer is not trusted, it is the client, and the header is not read. A peer on a
// Unix socket is always trusted. If the header has several addresses, the last counts.
//
// The prefixes 0.0.0.0/0 and ::/0 trust every peer, for proxies whose addresses change: then a
// client that can bypass them can choose its own address. Header panics if a prefix is not valid,
// or if name is empty or Forwarded; use [Forwarded] for that header.
func Header(name string, trusted ...netip.Prefix) Source {
	name = http.CanonicalHeaderKey(name)
	if name == "" || name == "Forwarded" {
		panic("clientip: Header needs a name, and not Forwarded: use clientip.Forwarded for that")
	}
	proxies, header := newRanges(trusted), at(name, lastField, 1)
	return Source{find: func(r *http.Request) netip.Addr {
		if peer := parse(r.RemoteAddr); !proxies.contain(peer) && !onUnixSocket(r) {
			return peer
		}
		return header.find(r)
	}}
}

// FromContext returns the Source of the address, as text, that get returns for the request's
// context. For chi, get is middleware.GetClientIP, and one of its ClientIPFrom middlewares has to
// run before. If the text is empty or not an address, the client is unknown. get must be safe for
// concurrent use. FromContext panics if get is nil.
func FromContext(get func(context.Context) string) Source {
	if get == nil {
		panic("clientip: the function of FromContext is nil")
	}
	return Source{find: func(r *http.Request) netip.Addr { return parse(get(r.Context())) }}
}

// WithIPv6Prefix returns a copy of s whose keys are IPv6 networks of the given length in bits. It
// panics if bits is not between 1 and 128.
func (s Source) WithIPv6Prefix(bits int) Source {
	checkBits(bits)
	s.bits = bits
	return s
}

// WithIPv4Prefix returns a copy of s whose keys are IPv4 networks of the given length in bits, such
// as "192.0.2.0/24", or addresses if bits is 32. It panics if bits is not between 1 and 32.
func (s Source) WithIPv4Prefix(bits int) Source {
	if bits < 1 || bits > ipv4Bits {
		panic("clientip: the length of an IPv4 prefix is not between 1 and 32 bits")
	}
	s.bits4 = bits
	return s
}

// Addr returns the address of the client, not IPv4-mapped and without a zone. It returns the zero
// Addr if the client is unknown.
func (s Source) Addr(r *http.Request) netip.Addr {
	if s.find == nil {
		return parse(r.RemoteAddr)
	}
	return s.find(r)
}

// Key returns the key of the client, as the package comment describes. The error is always nil: it
// makes the method value a key function of package httplimit. A key has at most 43 bytes.
func (s Source) Key(r *http.Request) (string, error) {
	var addr netip.Addr
	if s.find != nil {
		addr = s.find(r)
	} else {
		var host string
		if addr, host = split(r.RemoteAddr); addr.Is4() && s.bits4 == 0 {
			return host, nil // an IPv4 address has one spelling
		}
		addr = plain(addr)
	}
	return key(addr, cmp.Or(s.bits4, ipv4Bits), cmp.Or(s.bits, DefaultIPv6Prefix)), nil
}

func checkBits(bits int) {
	if bits < 1 || bits > 128 {
		panic("clientip: the length of an IPv6 prefix is not between 1 and 128 bits")
	}
}

// ipv4Bits is the length of an IPv4 address.
const ipv4Bits = 32

// key returns the key of an address from plain.
func key(addr netip.Addr, bits4, bits int) string {
	var buf [64]byte
	switch {
	case !addr.IsValid():
		return Unknown
	case addr.Is4() && bits4 == ipv4Bits:
		return string(addr.AppendTo(buf[:0]))
	case addr.Is4():
		bits = bits4
	}
	prefix, _ := addr.Prefix(bits) // a Prefix has no zone
	return string(prefix.AppendTo(buf[:0]))
}
