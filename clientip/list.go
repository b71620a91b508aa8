package clientip

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// A lastOf splits the last element off a line of a list. It returns the address of the element, or
// the zero Addr if it has none, and the rest of the line. An empty line has one empty element.
type lastOf func(line string) (addr netip.Addr, rest string, more bool)

// each calls visit with the elements of a header from right to left, until visit returns false.
// All lines of the header are one list.
func each(h http.Header, name string, last lastOf, visit func(netip.Addr) bool) {
	lines := h[name]
	for i := len(lines) - 1; i >= 0; i-- {
		line, more := lines[i], true
		for more {
			var addr netip.Addr
			if addr, line, more = last(line); !visit(addr) {
				return
			}
		}
	}
}

func rightmostUntrusted(name string, last lastOf, trusted []netip.Prefix) Source {
	proxies := newRanges(trusted)
	for _, r := range proxies {
		if r.first.IsUnspecified() && r.last == lastAddr(netip.PrefixFrom(r.first, 0)) {
			panic("clientip: a trusted prefix contains all addresses")
		}
	}
	return Source{find: func(r *http.Request) netip.Addr {
		client := parse(r.RemoteAddr)
		if !proxies.contain(client) && !onUnixSocket(r) {
			return client
		}
		each(r.Header, name, last, func(addr netip.Addr) bool {
			client = addr
			return proxies.contain(addr)
		})
		return client
	}}
}

func at(name string, last lastOf, n int) Source {
	if n < 1 {
		panic("clientip: n is less than 1; the right-most address is 1")
	}
	return Source{find: func(r *http.Request) (client netip.Addr) {
		left := n
		each(r.Header, name, last, func(addr netip.Addr) bool {
			left--
			if left == 0 {
				client = addr
			}
			return left > 0
		})
		return client
	}}
}

// onUnixSocket reports whether net/http received the request on a Unix socket. RemoteAddr is then
// the path of the client's socket. If that socket has no path, RemoteAddr is "@" on Linux and empty
// on other systems.
func onUnixSocket(r *http.Request) bool {
	if r.RemoteAddr == "" {
		local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		return ok && local.Network() == "unix"
	}
	return strings.HasPrefix(r.RemoteAddr, "@") || strings.HasPrefix(r.RemoteAddr, "/")
}

// lastField is the lastOf of a list of plain addresses.
func lastField(line string) (addr netip.Addr, rest string, more bool) {
	i := strings.LastIndexByte(line, ',')
	return parse(strings.Trim(line[i+1:], " \t")), line[:max(i, 0)], i >= 0
}
