package rules

import (
	"slices"
	"strings"
)

// few is the number of rules that are compared one by one.
const few = 4

// An index finds the rules whose conditions all match a request, which are limits or the exceptions
// of one. It is a tree: a rule is under its most selective condition, and many rules under one
// condition have an index of their other conditions. So a request is compared with few rules that
// do not match it.
type index struct {
	rules  []rule         // that are not in fields, by their number
	fields map[int]*field // by the number of an entry
}

// A rule has the conditions that are not those of the indexes above it.
type rule struct {
	number     int
	conditions []condition
}

// A field has the rules that are under a condition on one entry.
type field struct {
	exact    map[string]*index
	prefixes prefixes[*index]
	among    map[*Values]*index
}

// newIndex returns the index of rules, which ascend by their number.
func newIndex(rules []rule) *index {
	if len(rules) <= few {
		return &index{rules: rules}
	}
	counts := make(map[condition]int)
	for _, r := range rules {
		for _, c := range r.conditions {
			counts[c]++
		}
	}
	x := &index{fields: make(map[int]*field)}
	groups := make(map[condition][]rule)
	for _, r := range rules {
		if len(r.conditions) == 0 {
			x.rules = append(x.rules, r)
			continue
		}
		at := mostSelective(r.conditions, counts)
		group := r.conditions[at]
		groups[group] = append(groups[group], rule{r.number, without(r.conditions, at)})
	}
	begins := make(map[int]map[string]*index)
	for c, group := range groups {
		x.add(c, newIndex(group), begins)
	}
	for entry, texts := range begins {
		x.fields[entry].prefixes = newPrefixes(texts)
	}
	return x
}

// without returns conditions without that at an index.
func without(conditions []condition, at int) []condition {
	return append(conditions[:at:at], conditions[at+1:]...)
}

func (x *index) add(c condition, under *index, begins map[int]map[string]*index) {
	f := x.fields[c.entry]
	if f == nil {
		f = &field{exact: make(map[string]*index)}
		x.fields[c.entry] = f
	}
	switch {
	case c.among != nil:
		if f.among == nil {
			f.among = make(map[*Values]*index)
		}
		f.among[c.among] = under
		return
	case !c.prefix:
		f.exact[c.pattern] = under
		return
	}
	if begins[c.entry] == nil {
		begins[c.entry] = make(map[string]*index)
	}
	begins[c.entry][c.pattern] = under
}

// mostSelective returns the index of the condition with the least weight, and of equal ones the
// first.
func mostSelective(conditions []condition, counts map[condition]int) (best int) {
	least := 0
	for i, c := range conditions {
		if w := weight(c) * counts[c]; i == 0 || w < least {
			best, least = i, w
		}
	}
	return best
}

// weight says how many requests a condition is expected to match, against an exact one.
func weight(c condition) int {
	const beginning, every = 8, 1000
	switch {
	case c.among != nil:
		broad := len(c.among.prefixes) + len(c.among.networks)
		return min(len(c.among.exact)+beginning*broad, every-1)
	case !c.prefix:
		return 1
	case c.pattern != "":
		return beginning
	default:
		return every
	}
}

// appendMatches appends the numbers of the rules that match, in no order.
func (x *index) appendMatches(dst []int, r *request) []int {
	for _, rule := range x.rules {
		if matchAll(rule.conditions, r) {
			dst = append(dst, rule.number)
		}
	}
	if x.fields == nil {
		return dst
	}
	for _, entry := range r.present {
		f := x.fields[entry]
		if f == nil {
			continue
		}
		if r.several && r.readings[entry] != nil {
			dst = f.appendReadings(dst, r, entry)
			continue
		}
		value := r.values[entry]
		if under := f.exact[value]; under != nil {
			dst = under.appendMatches(dst, r)
		}
		for i := f.prefixes.find(value); i >= 0; i = f.prefixes[i].shorter {
			dst = f.prefixes[i].under.appendMatches(dst, r)
		}
		dst = f.appendAmong(dst, r, r.sets[entry])
	}
	return dst
}

// appendAmong appends the numbers of the rules that match one of sets.
func (f *field) appendAmong(dst []int, r *request, sets []*Values) []int {
	if f.among == nil {
		return dst
	}
	for _, v := range sets {
		if under := f.among[v]; under != nil {
			dst = under.appendMatches(dst, r)
		}
	}
	return dst
}

// appendReadings appends the numbers of the rules that match one of the readings of an entry, each
// once.
func (f *field) appendReadings(dst []int, r *request, entry int) []int {
	readings := r.readings[entry]
	if readings.Open {
		for _, under := range f.exact {
			dst = under.appendMatches(dst, r)
		}
		for i := range f.prefixes {
			dst = f.prefixes[i].under.appendMatches(dst, r)
		}
		for _, under := range f.among {
			dst = under.appendMatches(dst, r)
		}
		return dst
	}
	for n, value := range readings.List {
		if under := f.exact[value]; under != nil {
			dst = under.appendMatches(dst, r)
		}
		for i := f.prefixes.find(value); i >= 0; i = f.prefixes[i].shorter {
			p := &f.prefixes[i]
			if slices.ContainsFunc(readings.List[:n],
				func(earlier string) bool { return strings.HasPrefix(earlier, p.text) }) {
				break // that has matched all shorter ones too
			}
			dst = p.under.appendMatches(dst, r)
		}
	}
	return f.appendAmong(dst, r, r.sets[entry])
}

// firstImplied returns the least number of a rule that matches every request which matches all of
// known, if it is less than least and counts, or least.
func (x *index) firstImplied(known known, least int, counts func(number int) bool) int {
	for _, rule := range x.rules {
		if rule.number < least && imply(known.conditions, rule.conditions) && counts(rule.number) {
			least = rule.number
		}
	}
	for i, c := range known.conditions {
		f := x.fields[c.entry]
		if f == nil {
			continue
		}
		if under := f.exact[c.pattern]; under != nil && c.among == nil && !c.prefix {
			least = under.firstImplied(known, least, counts)
		}
		for j := f.prefixes.find(c.beginning()); j >= 0; j = f.prefixes[j].shorter {
			least = f.prefixes[j].under.firstImplied(known, least, counts)
		}
		for _, v := range known.sets[i] {
			if under := f.among[v]; under != nil {
				least = under.firstImplied(known, least, counts)
			}
		}
	}
	return least
}
