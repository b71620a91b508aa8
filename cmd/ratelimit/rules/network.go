package rules

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/truewindow/ratelimit/clientip"
)

// clientEntry is the entry in which forward auth has the address of a client.
const clientEntry = "client"

// checkClient adds a problem for a value of the entry client that is a network, which it is never
// compared with.
func (f *file) checkClient(n *yaml.Node, entry, pattern string, prefix bool) {
	if entry != clientEntry {
		return
	}
	if write, ok := network(pattern, prefix); ok {
		f.Add(n, "a client is compared as a text, not with a network: write %s", write)
	}
}

// network reports whether a pattern is a network, but not one that stands for a client of IPv6. It
// returns what to write.
func network(pattern string, prefix bool) (write string, ok bool) {
	left, bits, ok := strings.Cut(pattern, "/")
	if !ok {
		return "", false
	}
	bare := strings.TrimSuffix(strings.TrimPrefix(left, "["), "]")
	addr, err := netip.ParseAddr(bare)
	switch {
	case err != nil && (left == "" || strings.Trim(left, "0123456789.") != ""):
		return "", false // some other name
	case err == nil && addr.Is6() && prefix && bare == left:
		return "", false // the beginning of a client's network
	case err == nil && addr.Is6() && pattern == clientip.AddrKey(addr, clientip.DefaultIPv6Prefix):
		return "", false
	}
	n, err := strconv.Atoi(bits)
	switch {
	case err != nil || !addr.IsValid():
	case n == addr.BitLen() || addr.Is6() && n == clientip.DefaultIPv6Prefix:
		return clientip.AddrKey(addr, clientip.DefaultIPv6Prefix), true
	case addr.Is4() && n > 0 && n < 32 && n%8 == 0:
		return strings.Join(strings.Split(addr.String(), ".")[:n/8], ".") + ".*", true
	case addr.Is6() && n > 0 && n < 64 && n%16 == 0:
		groups := strings.Split(addr.String(), ":")
		if len(groups) > n/16 && !slices.Contains(groups[:n/16], "") {
			return strings.Join(groups[:n/16], ":") + ":*", true
		}
	}
	return "addresses such as 192.0.2.7, networks of clients such as 2001:db8::/64, or what they " +
		"begin with, such as 192.0.*", true
}
