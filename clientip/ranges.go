package clientip

import (
	"net/netip"
	"slices"
)

// ranges are sets of addresses, in order and without overlap.
type ranges []addrRange

type addrRange struct{ first, last netip.Addr }

func newRanges(prefixes []netip.Prefix) ranges {
	all := make(ranges, 0, len(prefixes))
	for _, p := range prefixes {
		if !p.IsValid() {
			panic("clientip: a trusted prefix is not valid")
		}
		if addr := plain(p.Addr()); addr.Is4() && p.Addr().Is6() {
			if p.Bits() < 96 {
				panic("clientip: a trusted prefix contains all IPv4 addresses")
			}
			p = netip.PrefixFrom(addr, p.Bits()-96)
		}
		all = append(all, addrRange{p.Masked().Addr(), lastAddr(p)})
	}
	slices.SortFunc(all, func(a, b addrRange) int { return a.first.Compare(b.first) })
	merged := all[:0]
	for _, r := range all {
		if n := len(merged); n > 0 && r.first.Compare(merged[n-1].last) <= 0 {
			if merged[n-1].last.Less(r.last) {
				merged[n-1].last = r.last
			}
			continue
		}
		merged = append(merged, r)
	}
	return merged
}

// contain reports whether one of the ranges contains addr. None contains the zero Addr.
func (rs ranges) contain(addr netip.Addr) bool {
	i, found := slices.BinarySearchFunc(rs, addr, func(r addrRange, a netip.Addr) int {
		return r.first.Compare(a)
	})
	return found || i > 0 && !rs[i-1].last.Less(addr)
}

// lastAddr returns the last address of a prefix.
func lastAddr(p netip.Prefix) netip.Addr {
	bytes := p.Addr().AsSlice()
	for i := range bytes {
		if host := (i+1)*8 - p.Bits(); host > 0 {
			bytes[i] |= 1<<min(host, 8) - 1
		}
	}
	addr, _ := netip.AddrFromSlice(bytes)
	return addr
}
