package rules

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Values are the values that a [Condition] takes: those of a list or of a file. They do not change.
type Values struct {
	// Each is sorted, and has nothing that another element covers.
	exact    []string
	prefixes []string // what values begin with
	networks []netip.Prefix

	file string // as the limits name it; empty for a list
}

// newValues returns the Values of what may have duplicates. It keeps and changes the slices.
func newValues(exact, prefixes []string, networks []netip.Prefix, file string) *Values {
	slices.Sort(exact)
	slices.Sort(prefixes)
	slices.SortFunc(networks, netip.Prefix.Compare)
	v := &Values{file: file}
	for _, p := range prefixes {
		if !v.covers(p) {
			v.prefixes = append(v.prefixes, p)
		}
	}
	for _, n := range networks {
		if !v.hasNetwork(n) {
			v.networks = append(v.networks, n)
		}
	}
	v.exact = slices.DeleteFunc(slices.Compact(exact), v.covers)
	return v
}

// Empty reports whether v has nothing, as a file may.
func (v *Values) Empty() bool { return v.size() == 0 }

// size returns how many elements v has.
func (v *Values) size() int { return len(v.exact) + len(v.prefixes) + len(v.networks) }

// has reports whether v has a value of an entry.
func (v *Values) has(value string) bool {
	if _, found := slices.BinarySearch(v.exact, value); found || v.covers(value) {
		return true
	}
	if len(v.networks) == 0 {
		return false
	}
	n, ok := clientNetwork(value)
	return ok && v.hasNetwork(n)
}

// covers reports whether a text begins with one of the prefixes. None of them begins with another
// one, so it is the last that is not greater than the text.
func (v *Values) covers(text string) bool {
	i, found := slices.BinarySearch(v.prefixes, text)
	return found || i > 0 && strings.HasPrefix(text, v.prefixes[i-1])
}

// hasNetwork reports whether all addresses of a network are in one of v's, as covers does.
func (v *Values) hasNetwork(n netip.Prefix) bool {
	i, found := slices.BinarySearchFunc(v.networks, n, netip.Prefix.Compare)
	return found || i > 0 && within(n, v.networks[i-1])
}

// String returns the file, one or two elements, or how many there are.
func (v *Values) String() string {
	switch n := v.size(); {
	case v.file != "":
		return plain(v.file)
	case n > 2 && n == len(v.networks):
		return fmt.Sprint(n, " networks")
	case n > 2:
		return fmt.Sprint(n, " values")
	}
	var texts []string
	for c := range v.conditions("") {
		texts = append(texts, c.pattern())
	}
	if len(texts) == 1 {
		return texts[0]
	}
	return "[" + strings.Join(texts, ", ") + "]"
}

// conditions calls yield with a condition on an entry for each element.
func (v *Values) conditions(entry string) func(yield func(Condition) bool) {
	return func(yield func(Condition) bool) {
		for _, text := range v.exact {
			if !yield(Condition{Entry: entry, Pattern: text}) {
				return
			}
		}
		for _, text := range v.prefixes {
			if !yield(Condition{Entry: entry, Pattern: text, Prefix: true}) {
				return
			}
		}
		for _, n := range v.networks {
			if !yield(Condition{Entry: entry, Pattern: n.String()}) {
				return
			}
		}
	}
}
