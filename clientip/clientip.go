// Package clientip tells who the client of an HTTP request is, for limits by address.
//
//	handler := httplimit.Handler(limiter, clientip.RemoteAddr, mux)
//
// Without a proxy in front of the server, the client is the peer: [RemoteAddr]. Behind proxies the
// peer is a proxy, and the client's address is in a header that the proxies write. The client can
// send that header too. Proxies append to a list, so the right end of the list is theirs, and the
// client wrote everything left of the first address that is not a proxy's. Which header to read,
// and where in it, depends on the proxies; there is no default:
//
//	proxy                              setting
//	none                               RemoteAddr
//	nginx with
//	  $proxy_add_x_forwarded_for       XForwardedFor(prefixes of the nginx servers)
//	nginx with X-Real-IP $remote_addr  Header("X-Real-IP")
//	Caddy                              XForwardedFor(prefixes of the Caddy servers)
//	Traefik                            XForwardedFor(prefixes of the Traefik servers)
//	one load balancer that appends,
//	  at changing addresses            XForwardedForAt(1)
//	a CDN that appends, in front of
//	  such a load balancer             XForwardedForAt(2)
//	Cloudflare, directly               Header("CF-Connecting-IP")
//	Cloudflare, then nginx             XForwardedFor(prefixes of nginx and of Cloudflare)
//	a proxy that writes RFC 7239       Forwarded(prefixes of the proxies)
//	chi's ClientIPFrom… middleware     FromContext(middleware.GetClientIP)
//
// [XForwardedFor] and [Forwarded] are the safe choice: they read the header only if the peer is a
// trusted proxy. The others believe whoever connects, so use them only where nobody but the proxies
// can connect to the server, and, for Header, where the proxy replaces what the client sent.
//
// # Keys
//
// The key of an IPv4 address is the address. The key of an IPv6 address is its /64 network, the
// least that one subscriber has; [Source.WithIPv6Prefix] changes the length. All spellings of one
// address have the same key: ports, brackets and zones do not matter, and an IPv4-mapped IPv6
// address counts as the IPv4 address.
//
// All requests whose client cannot be told share the key [Unknown], and thus one limit: they are
// neither free nor refused. The client's address cannot be told if the place where it has to be is
// missing, or holds no IP address. Addresses further left are not used instead.
package clientip

import (
	"context"
	"net/http"
	"net/netip"
)

// Unknown is the key of all requests whose client cannot be told.
const Unknown = "unknown"

// DefaultIPv6Prefix is the length in bits of the IPv6 networks that have one key each, unless
// [Source.WithIPv6Prefix] says otherwise.
const DefaultIPv6Prefix = 64

// RemoteAddr is the key of the peer, from [http.Request.RemoteAddr]: Key of the zero [Source]. The
// error is always nil.
func RemoteAddr(r *http.Request) (string, error) { return Source{}.Key(r) }

// AddrKey returns the key of an address that the caller has found, such as the peer of a gRPC call.
// IPv6 addresses have one key for each network of the given length in bits. It panics if bits is
// not between 1 and 128.
func AddrKey(addr netip.Addr, bits int) string {
	checkBits(bits)
	return key(addr.Unmap(), bits)
}

// A Source is where the address of a client is found. The zero Source is the peer,
// [http.Request.RemoteAddr]. A Source does not change, and any number of goroutines can use it.
type Source struct {
	find func(*http.Request) netip.Addr // nil for the peer
	bits int                            // 0 for DefaultIPv6Prefix
}

// XForwardedFor is the right-most address in X-Forwarded-For that is not trusted: trusted has the
// proxies that append to that header. The peer counts as the right-most address. So the client is
// the peer if the peer is not trusted, which is always so without prefixes. A peer on a Unix socket
// is trusted. If all addresses are trusted, the client is the left-most.
//
// The time to look up an address grows with the logarithm of the number of prefixes. XForwardedFor
// panics if a prefix is not valid, or has a length of 0 and thus trusts everybody.
func XForwardedFor(trusted ...netip.Prefix) Source {
	return rightmostUntrusted("X-Forwarded-For", lastField, trusted)
}

// XForwardedForAt is the n-th address from the right in X-Forwarded-For, for n proxies that each
// append one: 1 is the right-most. It panics if n is less than 1.
//
// A client that can connect past a proxy chooses its own address.
func XForwardedForAt(n int) Source {
	return at("X-Forwarded-For", lastField, n)
}

// Forwarded is [XForwardedFor] for the "for" parameters of the header Forwarded (RFC 7239). The
// identifier "unknown" and obfuscated identifiers, such as "_hidden", are no addresses.
func Forwarded(trusted ...netip.Prefix) Source {
	return rightmostUntrusted("Forwarded", lastElement, trusted)
}

// ForwardedAt is [XForwardedForAt] for the header Forwarded.
func ForwardedAt(n int) Source {
	return at("Forwarded", lastElement, n)
}

// Header is the address in a header that your own proxy sets on each request, in place of what the
// client sent, such as X-Real-IP or CF-Connecting-IP. If there are several addresses, it is the
// last. It panics if name is empty, or Forwarded, which has its own function.
//
// A client that can connect past the proxy chooses its own address.
func Header(name string) Source {
	name = http.CanonicalHeaderKey(name)
	if name == "" || name == "Forwarded" {
		panic("clientip: a header that holds one address is required")
	}
	return at(name, lastField, 1)
}

// FromContext is the address that get returns for the request's context, as text: for chi,
// middleware.GetClientIP, where one of its ClientIPFrom middlewares has run before. Text that is
// not an address, the empty one too, means that the client is unknown. It panics if get is nil.
func FromContext(get func(context.Context) string) Source {
	if get == nil {
		panic("clientip: no function of the context")
	}
	return Source{find: func(r *http.Request) netip.Addr { return parse(get(r.Context())) }}
}

// WithIPv6Prefix returns a Source whose keys are of IPv6 networks of the given length in bits. It
// panics if bits is not between 1 and 128.
func (s Source) WithIPv6Prefix(bits int) Source {
	checkBits(bits)
	s.bits = bits
	return s
}

// Addr returns the address of the client: never IPv4-mapped, and without a zone. It returns the
// zero Addr if the client cannot be told.
func (s Source) Addr(r *http.Request) netip.Addr {
	if s.find == nil {
		return parse(r.RemoteAddr)
	}
	return s.find(r)
}

// Key returns the key of the client, as the package comment describes; the error is always nil.
// The method value is a key function of package httplimit. A key has at most 43 bytes.
func (s Source) Key(r *http.Request) (string, error) {
	var addr netip.Addr
	if s.find != nil {
		addr = s.find(r)
	} else {
		var host string
		if addr, host = split(r.RemoteAddr); addr.Is4() {
			return host, nil // an IPv4 address has one spelling
		}
		addr = plain(addr)
	}
	bits := s.bits
	if bits == 0 {
		bits = DefaultIPv6Prefix
	}
	return key(addr, bits), nil
}

func checkBits(bits int) {
	if bits < 1 || bits > 128 {
		panic("clientip: the length of an IPv6 prefix is not between 1 and 128 bits")
	}
}

// key returns the key of an address that is not IPv4-mapped.
func key(addr netip.Addr, bits int) string {
	var buf [64]byte
	switch {
	case !addr.IsValid():
		return Unknown
	case addr.Is4():
		return string(addr.AppendTo(buf[:0]))
	}
	prefix, _ := addr.Prefix(bits) // which has no zone
	return string(prefix.AppendTo(buf[:0]))
}
