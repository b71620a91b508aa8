package daemon

import (
	"log/slog"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
)

// lackInterval is the least time between two lines of the log about the same lack.
const lackInterval = time.Minute

// lacks counts what proxies do not tell, although limits need it, and logs it now and then.
type lacks struct {
	log     *slog.Logger
	entries map[string]*lack // by the source of an entry: client, method, host, path
	inside  lack             // clients in a network of --trusted-proxy
}

type lack struct {
	count atomic.Int64
	gate  gate
}

func newLacks(log *slog.Logger) *lacks {
	l := &lacks{log: log, entries: make(map[string]*lack)}
	for _, source := range []string{"client", "method", "host", "path"} {
		l.entries[source] = &lack{gate: gate{every: lackInterval}}
	}
	l.inside.gate.every = lackInterval
	return l
}

// note counts a request, and returns how many lines of the log were suppressed if one is due.
func (l *lack) note() (due bool, suppressed int) {
	l.count.Add(1)
	return l.gate.pass(time.Now())
}

// note notes what is wrong with the value of a source that limits need. The line has no address:
// that of a client is a key.
func (f *forwardAuth) note(r *http.Request, source, value string) {
	l := f.lacks.entries[source]
	header, flag := f.profile.header(source), "--forward-auth"
	switch {
	case l == nil: // an optional header of --entry
		return
	case source != "client":
		if value != "" {
			return
		}
	case !f.trusted.sent(r): // the client is the proxy, or a stranger
		flag = "--trusted-proxy"
	case len(r.Header.Values(xForwardedFor)) > 0:
		if f.trusted.contain(f.client.Addr(r)) {
			if due, suppressed := f.lacks.inside.note(); due {
				f.lacks.log.Warn("a client is in a network of --trusted-proxy, so it can choose "+
					"the address that it is limited by: name the proxies' addresses",
					"header", header, "suppressed", suppressed)
			}
		}
		return
	}
	if due, suppressed := l.note(); due {
		f.lacks.log.Warn("a proxy does not tell an entry that limits need: see "+flag,
			"entry", source, "header", header, "suppressed", suppressed)
	}
}

// trustedProxies are the networks of --trusted-proxy.
type trustedProxies []netip.Prefix

func (t trustedProxies) contain(addr netip.Addr) bool {
	addr = addr.Unmap()
	for _, p := range t {
		if unmapped(p).Contains(addr) {
			return true
		}
	}
	return false
}

// sent reports whether the peer of r is trusted. A peer on a Unix socket is, if any is.
func (t trustedProxies) sent(r *http.Request) bool {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return len(t) > 0
	}
	return t.contain(peer.Addr().WithZone(""))
}

// unmapped returns a prefix of IPv4-mapped addresses as one of IPv4.
func unmapped(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p
}

// Private networks, whose addresses clients may have too.
var privateNetworks = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.168.0.0/16"), netip.MustParsePrefix("100.64.0.0/10"),
	netip.MustParsePrefix("fc00::/7"), netip.MustParsePrefix("fe80::/10"),
}

// wide returns those that clients may be in: private ones that are larger than one network, of
// IPv4 a /24 and of IPv6 a /64. Public ones, such as those of a CDN, have no clients in them.
func (t trustedProxies) wide() (wide trustedProxies) {
	for _, p := range t {
		p = unmapped(p)
		most := 64
		if p.Addr().Is4() {
			most = 24
		}
		for _, private := range privateNetworks {
			if p.Bits() < most && p.Overlaps(private) {
				wide = append(wide, p)
				break
			}
		}
	}
	return wide
}

// warn logs which networks of --trusted-proxy clients may be in.
func (t trustedProxies) warn(log *slog.Logger) {
	for _, p := range t.wide() {
		log.Warn("--trusted-proxy is a private network: whoever is in it can choose the address "+
			"that it is limited by, so name the proxies' addresses", "prefix", p.String())
	}
}

// readForwardAuth adds what proxies do not tell.
func readForwardAuth(add addFunc, f *forwardAuth) {
	for source, l := range f.lacks.entries {
		add("ratelimit.forward_auth.missing", l.count.Load(),
			attribute.String("ratelimit.entry", source))
	}
	add("ratelimit.forward_auth.trusted_clients", f.lacks.inside.count.Load())
}
