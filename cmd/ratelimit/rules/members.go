package rules

import (
	"net/netip"
	"slices"
)

// members finds which of the Values of an entry have a value of it, at the cost of those that do.
type members struct {
	exact    map[string][]*Values
	prefixes prefixes[[]*Values]
	networks networks
}

// members returns those of each entry, by its number: nil for one whose conditions have no Values.
func (n names) members(limits []*Limit) []*members {
	all := make([][]*Values, len(n))
	seen := make(map[condition]bool)
	add := func(conditions []Condition) {
		for _, c := range conditions {
			entry, ok := n[c.Entry]
			if of := (condition{entry: entry, among: c.Among}); ok && c.Among != nil && !seen[of] {
				seen[of], all[entry] = true, append(all[entry], c.Among)
			}
		}
	}
	for _, l := range limits {
		add(l.When)
		for _, e := range l.Except {
			add(e.When)
		}
	}
	found := make([]*members, len(n))
	for entry, sets := range all {
		if sets != nil {
			found[entry] = newMembers(sets)
		}
	}
	return found
}

func newMembers(all []*Values) *members {
	m := &members{exact: make(map[string][]*Values)}
	begins, within := make(map[string][]*Values), make(map[netip.Prefix][]*Values)
	for _, v := range all {
		alone := []*Values{v} // shared: of many values only v has most
		for _, text := range v.exact {
			put(m.exact, text, alone)
		}
		for _, text := range v.prefixes {
			put(begins, text, alone)
		}
		for _, n := range v.networks {
			put(within, n, alone)
		}
	}
	m.prefixes, m.networks = newPrefixes(begins), newNetworks(within)
	return m
}

func put[K comparable](to map[K][]*Values, key K, alone []*Values) {
	if had := to[key]; had != nil {
		to[key] = append(slices.Clip(had), alone...)
		return
	}
	to[key] = alone
}

// appendSets appends the Values that have a value and are not in dst.
func (m *members) appendSets(dst []*Values, value string) []*Values {
	dst = appendNew(dst, m.exact[value])
	for i := m.prefixes.find(value); i >= 0; i = m.prefixes[i].shorter {
		dst = appendNew(dst, m.prefixes[i].under)
	}
	if len(m.networks) == 0 {
		return dst
	}
	if n, ok := clientNetwork(value); ok {
		for i := m.networks.find(n); i >= 0; i = m.networks[i].wider {
			dst = appendNew(dst, m.networks[i].under)
		}
	}
	return dst
}

func appendNew(dst, more []*Values) []*Values {
	if len(dst) == 0 {
		return append(dst, more...)
	}
	for _, v := range more {
		if !slices.Contains(dst, v) {
			dst = append(dst, v)
		}
	}
	return dst
}

// networks finds those of a set of networks that contain another one, as prefixes does for texts.
type networks []netUnder // sorted

type netUnder struct {
	network netip.Prefix
	wider   int // index of the narrowest other network that contains this one, or -1
	under   []*Values
}

func newNetworks(all map[netip.Prefix][]*Values) networks {
	n := make(networks, 0, len(all))
	for p, under := range all {
		n = append(n, netUnder{p, -1, under})
	}
	slices.SortFunc(n, func(a, b netUnder) int { return a.network.Compare(b.network) })
	for i := 1; i < len(n); i++ {
		n[i].wider = n.narrowest(n[i].network, i)
	}
	return n
}

// narrowest returns the index of the narrowest of the first count networks that contains p, which
// is not less than any of them, or -1.
func (n networks) narrowest(p netip.Prefix, count int) int {
	i := count - 1
	for i >= 0 && !within(p, n[i].network) {
		i = n[i].wider
	}
	return i
}

// find returns the index of the narrowest network that contains p, or -1.
func (n networks) find(p netip.Prefix) int {
	count, found := slices.BinarySearchFunc(n, p, func(x netUnder, p netip.Prefix) int {
		return x.network.Compare(p)
	})
	if found {
		count++
	}
	return n.narrowest(p, count)
}

// within reports whether a network contains all addresses of p.
func within(p, network netip.Prefix) bool {
	return network.Bits() <= p.Bits() && network.Contains(p.Addr())
}
