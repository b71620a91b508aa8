package rules

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/truewindow/ratelimit/clientip"
)

// clientEntry is the entry in which forward auth has the address of a client.
const clientEntry = "client"

// networkEntries are the entries whose values are addresses, so that conditions on them can be
// networks: that of forward auth, and that of an action of Envoy.
var networkEntries = []string{clientEntry, "remote_address"}

// clientNetwork returns a value of such an entry as a network: an address is one of a single
// address, and a client of IPv6 is a network already. ok is false for other values.
func clientNetwork(value string) (n netip.Prefix, ok bool) {
	if strings.IndexByte(value, '/') >= 0 {
		n, err := netip.ParsePrefix(value)
		return unmapped(n), err == nil
	}
	addr, err := netip.ParseAddr(value)
	if err != nil {
		return n, false
	}
	addr = addr.Unmap() // a Prefix has no zone
	return netip.PrefixFrom(addr, addr.BitLen()), true
}

// unmapped returns the network of IPv4 that a network of addresses such as ::ffff:10.0.0.1 is.
func unmapped(n netip.Prefix) netip.Prefix {
	const mapped = 128 - 32
	if n.Addr().Is4In6() && n.Bits() >= mapped {
		return netip.PrefixFrom(n.Addr().Unmap(), n.Bits()-mapped)
	}
	return n
}

// network returns the network that a pattern is, or what is wrong with one that is meant as a
// network. meant is false for other patterns, such as acme/web and the beginning 2001:db8::/*.
func network(pattern string) (n netip.Prefix, problem string, meant bool) {
	left, bits, ok := strings.Cut(pattern, "/")
	if !ok {
		return n, "", false
	}
	n, err := netip.ParsePrefix(pattern)
	if err == nil && n == n.Masked() {
		return unmapped(n), "", true
	}
	bare := strings.TrimSuffix(strings.TrimPrefix(left, "["), "]")
	addr, err := netip.ParseAddr(bare)
	switch {
	case err != nil && (left == "" || strings.Trim(left, "0123456789.") != ""),
		err == nil && addr.Is6() && bare == left && strings.HasSuffix(bits, "*"):
		return n, "", false
	}
	length, err := strconv.Atoi(bits)
	n = netip.PrefixFrom(addr.WithZone(""), length).Masked()
	if err != nil || !n.IsValid() {
		return n, "a network is such as 10.0.0.0/8 or 2001:db8::/32", true
	}
	return n, fmt.Sprintf("write the network as %v", n), true
}

// checkPlan adds a problem for a value of by that is a network, and not the client of IPv6 that it
// stands for.
func (f *file) checkPlan(n *yaml.Node, entry string) {
	if !slices.Contains(networkEntries, entry) {
		return
	}
	p, problem, meant := network(n.Value)
	if meant && (problem != "" ||
		n.Value != clientip.AddrKey(p.Addr(), clientip.DefaultIPv6Prefix)) {
		f.Add(n, "by has exact values: write an exception for a network")
	}
}
