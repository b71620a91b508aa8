package httpapi

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
)

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

// CheckTrustedProxies returns an error for networks that everyone is in.
func CheckTrustedProxies(proxies []netip.Prefix) error {
	for _, p := range proxies {
		if unmapped(p).Bits() <= 0 {
			return fmt.Errorf("--trusted-proxy=%v trusts everyone", p)
		}
	}
	return nil
}

// includesPeer reports whether the peer of r is trusted. A peer on a Unix socket is, if any is.
func (t trustedProxies) includesPeer(r *http.Request) bool {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return len(t) > 0
	}
	return t.contain(peer.Addr().WithZone(""))
}

// unmapped returns a prefix of IPv4-mapped addresses as one of IPv4: as all of it, if it is wider.
func unmapped(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() {
		return netip.PrefixFrom(p.Addr().Unmap(), max(0, p.Bits()-96))
	}
	return p
}

// Private networks, whose addresses clients may have too.
var privateNetworks = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.168.0.0/16"), netip.MustParsePrefix("100.64.0.0/10"),
	netip.MustParsePrefix("fc00::/7"), netip.MustParsePrefix("fe80::/10"),
}

// wide returns those that clients may be in: private ones that are larger than a /24 of IPv4 or a
// /64 of IPv6. Public ones, such as those of a CDN, have no clients in them.
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
