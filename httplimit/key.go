package httplimit

import (
	"errors"
	"net/http"
	"net/netip"
)

// A KeyFunc returns the key of a request: the user or address that it is from, or what it asks for.
// An error or an empty key means that the request cannot be attributed; the client gets that
// answer, and not the text of the error. Many goroutines call it at once.
//
// A key that the client can choose, such as the first address in X-Forwarded-For, limits nothing:
// the client chooses another one for each request.
type KeyFunc func(*http.Request) (string, error)

var errNoAddr = errors.New("httplimit: the request has no IP address in RemoteAddr")

// RemoteAddr is the KeyFunc of the peer's IP address, taken from [http.Request.RemoteAddr]: an IPv4
// address, or the /64 network of an IPv6 address, the least that one subscriber has. An IPv4-mapped
// IPv6 address counts as the IPv4 address, and zones do not matter.
//
// Behind a reverse proxy the peer is the proxy, and all its clients would share one limit. There,
// write a KeyFunc that takes the address from the header that this proxy sets, from the end that
// the client cannot write.
func RemoteAddr(r *http.Request) (string, error) {
	return remoteAddr(r, 64)
}

// RemoteAddrPrefix is [RemoteAddr] with IPv6 networks of the given length in bits, from 1 to 128.
// It panics if bits is out of range.
func RemoteAddrPrefix(bits int) KeyFunc {
	if bits < 1 || bits > 128 {
		panic("httplimit: the length of an IPv6 prefix is not between 1 and 128 bits")
	}
	return func(r *http.Request) (string, error) {
		return remoteAddr(r, bits)
	}
}

// remoteAddr returns no error of netip, which quotes the address.
func remoteAddr(r *http.Request, bits int) (string, error) {
	var addr netip.Addr
	if ap, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		addr = ap.Addr()
	} else if addr, err = netip.ParseAddr(r.RemoteAddr); err != nil {
		// Not even an address: a handler in front may have left out the port, and no more.
		return "", errNoAddr
	}
	var buf [64]byte
	addr = addr.Unmap()
	if addr.Is4() {
		return string(addr.AppendTo(buf[:0])), nil
	}
	prefix, err := addr.Prefix(bits) // which has no zone
	if err != nil {
		return "", errNoAddr
	}
	return string(prefix.AppendTo(buf[:0])), nil
}
