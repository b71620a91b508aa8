package httpapi

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/truewindow/ratelimit/httplimit/problem"
)

// Hosts are the names that the daemon serves, in lower case, besides localhost and IP addresses.
//
// A web site can make its own name resolve to the address of the daemon (DNS rebinding). To a
// browser the daemon then has the origin of that site, and only the name in Host shows that the
// request is not for the daemon.
//
// /v1/check is answered under all names, for Envoy with all below it: a proxy sends that of the
// site that its client asks for. So a page in a browser that reaches the daemon, as on the same
// machine with --addr on localhost, can take units, one a request, and see what is left. Everyone
// who reaches the daemon may do that without a token; /v1/check holds nothing, and returns no id
// and no key.
type Hosts map[string]bool

// NewHosts returns names, and the hosts that are names in the addresses that the daemon listens on.
func NewHosts(names []HostFlag, addrs ...string) Hosts {
	h := make(Hosts)
	for _, addr := range addrs {
		if host, _, err := net.SplitHostPort(addr); err == nil && host != "" {
			if _, err := netip.ParseAddr(host); err != nil {
				h[canonical(host)] = true
			}
		}
	}
	for _, name := range names {
		h[canonical(string(name))] = true
	}
	return h
}

// canonical returns a name in lower case, without the dot of the root.
func canonical(name string) string {
	return strings.ToLower(strings.TrimSuffix(name, "."))
}

// Only answers requests for other hosts with 421, unless exempt reports true for their path, and
// passes the rest on.
func (h Hosts) Only(next http.Handler, exempt func(path string) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !h.serve(r) && !exempt(r.URL.Path) {
			problem.Problem{
				Status: http.StatusMisdirectedRequest,
				Detail: "The daemon does not serve the host name of this request. It serves " +
					"localhost, IP addresses, the host of --addr, and the names of --host.",
			}.Write(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// serve reports whether r is for the daemon. Browsers always send a host, so a request without one,
// which HTTP/1.0 allows, does not come from a page. Nor do those of a Unix socket.
func (h Hosts) serve(r *http.Request) bool {
	addr, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if addr != nil && addr.Network() == "unix" {
		return true
	}
	if r.Host == "" {
		return !r.ProtoAtLeast(1, 1)
	}
	host := r.Host
	if i := strings.LastIndexByte(host, ':'); i > strings.LastIndexByte(host, ']') {
		host = host[:i]
	}
	if literal, ok := strings.CutPrefix(host, "["); ok {
		literal, ok = strings.CutSuffix(literal, "]")
		addr, err := netip.ParseAddr(literal)
		return ok && err == nil && addr.Is6()
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.Is4()
	}
	name := canonical(host)
	return name == "localhost" || strings.HasSuffix(name, ".localhost") || h[name]
}

// HostFlag is the name of a host.
type HostFlag string

const (
	hostLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._"
	maxHostName = 253
)

// UnmarshalText is called by kong.
func (f *HostFlag) UnmarshalText(text []byte) error {
	name := string(text)
	isOther := func(c rune) bool { return !strings.ContainsRune(hostLetters, c) }
	if name == "" || len(name) > maxHostName || strings.ContainsFunc(name, isOther) {
		return fmt.Errorf("%q is not a plain host name, such as limits.internal: "+
			"leave out scheme and port", name)
	}
	*f = HostFlag(name)
	return nil
}
