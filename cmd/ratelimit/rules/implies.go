package rules

import (
	"net/netip"
	"slices"
	"strings"
)

// implies reports whether every value that matches c matches d, which is on the same entry. False
// may also mean that it is not known: what is in a file can change at any time, and must not make
// limits wrong that refer to it.
func (c condition) implies(d condition) bool {
	switch {
	case c.among != nil && c.among == d.among:
		return true
	case d.among == nil && d.prefix:
		return strings.HasPrefix(c.beginning(), d.pattern)
	case d.among != nil && d.among.file != "" || c.among != nil && c.among.file != "":
		return false
	case c.among != nil:
		return d.among != nil && d.among.hasAll(c.among)
	case d.among == nil:
		return !c.prefix && c.pattern == d.pattern
	case c.prefix:
		return d.among.covers(c.pattern)
	default:
		return d.among.has(c.pattern)
	}
}

// beginning returns a text with which every value that matches c begins.
func (c condition) beginning() string {
	if c.among == nil {
		return c.pattern
	}
	v := c.among
	if v.file != "" || len(v.networks) > 0 {
		return ""
	}
	var ends []string // each list is sorted
	for _, list := range [][]string{v.exact, v.prefixes} {
		if len(list) > 0 {
			ends = append(ends, list[0], list[len(list)-1])
		}
	}
	if len(ends) == 0 {
		return ""
	}
	first, last := slices.Min(ends), slices.Max(ends)
	i := 0
	for i < min(len(first), len(last)) && first[i] == last[i] {
		i++
	}
	return first[:i]
}

// hasAll reports whether v has all values of another list.
func (v *Values) hasAll(of *Values) bool {
	return !slices.ContainsFunc(of.exact, func(s string) bool { return !v.has(s) }) &&
		!slices.ContainsFunc(of.prefixes, func(s string) bool { return !v.covers(s) }) &&
		!slices.ContainsFunc(of.networks, func(n netip.Prefix) bool { return !v.hasNetwork(n) })
}

// excludes reports whether no value matches both c and d, which is on the same entry. False may
// also mean that it is not known, as for implies.
func (c condition) excludes(d condition) bool {
	switch {
	case c.among != nil:
		return c.among.apart(d)
	case d.among != nil:
		return d.among.apart(c)
	case c.prefix:
		return !d.mayBegin(c.pattern)
	default:
		return !d.matchesValue(c.pattern)
	}
}

// apart reports whether d matches no value of v.
func (v *Values) apart(d condition) bool {
	switch {
	case v.file != "" || d.among != nil && d.among.file != "":
		return false
	case d.among == nil && d.prefix:
		return !condition{among: v}.mayBegin(d.pattern)
	case d.among == nil:
		return !v.has(d.pattern)
	case d.among != nil && d.among.size() < v.size():
		v, d.among = d.among, v
	}
	return !slices.ContainsFunc(v.exact, d.matchesValue) &&
		!slices.ContainsFunc(v.prefixes, d.mayBegin) && !slices.ContainsFunc(v.networks, d.mayMeet)
}

// mayBegin reports whether c may match a value that begins with a text.
func (c condition) mayBegin(text string) bool {
	if c.among == nil {
		return strings.HasPrefix(c.pattern, text) || c.prefix && strings.HasPrefix(text, c.pattern)
	}
	v := c.among
	return len(v.networks) > 0 || v.covers(text) || oneBegins(v.exact, text) ||
		oneBegins(v.prefixes, text)
}

// oneBegins reports whether one of sorted texts begins with another text.
func oneBegins(sorted []string, text string) bool {
	i, _ := slices.BinarySearch(sorted, text)
	return i < len(sorted) && strings.HasPrefix(sorted[i], text)
}

// mayMeet reports whether c may match an address of a network.
func (c condition) mayMeet(n netip.Prefix) bool {
	inside := func(value string) bool {
		m, ok := clientNetwork(value)
		return ok && within(m, n)
	}
	if c.among == nil {
		return c.prefix || inside(c.pattern)
	}
	v := c.among
	return len(v.prefixes) > 0 || v.hasNetwork(n) || slices.ContainsFunc(v.exact, inside) ||
		slices.ContainsFunc(v.networks, func(m netip.Prefix) bool { return within(m, n) })
}

// A known is what all requests of a limit, or of one of its rates, match.
type known struct {
	conditions []condition
	sets       [][]*Values // for each condition: those that have all that it matches
}

// know finds the Values that have all that conditions match. Of very many it misses some.
func (s *Set) know(conditions []condition) known {
	k := known{conditions, make([][]*Values, len(conditions))}
	for i, c := range conditions {
		m := s.members[c.entry]
		if m == nil {
			continue
		}
		const most = 100 // each is compared with c
		sets := m.of(c)
		sets = slices.DeleteFunc(sets[:min(most, len(sets))], func(v *Values) bool {
			return v == c.among || !c.implies(condition{entry: c.entry, among: v})
		})
		if c.among != nil {
			sets = append(sets, c.among)
		}
		k.sets[i] = sets
	}
	return k
}

// of returns the Values that may have all that c matches: those that have some of it.
func (m *members) of(c condition) (sets []*Values) {
	v := c.among
	switch {
	case v == nil && !c.prefix:
		return m.appendSets(nil, c.pattern)
	case v == nil:
		return m.begun(c.pattern)
	case v.file != "":
		return nil // nobody knows what it will have
	case len(v.exact) > 0:
		return m.appendSets(nil, v.exact[0])
	case len(v.prefixes) > 0:
		return m.begun(v.prefixes[0])
	}
	for i := m.networks.find(v.networks[0]); i >= 0; i = m.networks[i].wider {
		sets = appendNew(sets, m.networks[i].under)
	}
	return sets
}

// begun returns the Values that have all that begins with a text.
func (m *members) begun(text string) (sets []*Values) {
	for i := m.prefixes.find(text); i >= 0; i = m.prefixes[i].shorter {
		sets = appendNew(sets, m.prefixes[i].under)
	}
	return sets
}
