package rules

import (
	"slices"
	"strings"
)

// prefixes finds those of a set of texts with which a value begins.
type prefixes []prefix // sorted by text

type prefix struct {
	text  string
	under int // index of the longest other text with which text begins, or -1
	rules []int
}

func newPrefixes(rules map[string][]int) prefixes {
	p := make(prefixes, 0, len(rules))
	for text, numbers := range rules {
		p = append(p, prefix{text, -1, numbers})
	}
	slices.SortFunc(p, func(a, b prefix) int { return strings.Compare(a.text, b.text) })
	for i := 1; i < len(p); i++ {
		p[i].under = p.longest(p[i].text, i)
	}
	return p
}

// longest returns the index of the longest of the first n texts with which a value begins, or -1.
// The value is not less than any of them. So every text with which it begins is one with which the
// last of them begins too.
func (p prefixes) longest(value string, n int) int {
	i := n - 1
	for i >= 0 && !strings.HasPrefix(value, p[i].text) {
		i = p[i].under
	}
	return i
}

// appendRules appends the rules of all texts with which value begins.
func (p prefixes) appendRules(dst []int, value string) []int {
	n, found := slices.BinarySearchFunc(p, value, func(x prefix, value string) int {
		return strings.Compare(x.text, value)
	})
	if found {
		n++
	}
	for i := p.longest(value, n); i >= 0; i = p[i].under {
		dst = append(dst, p[i].rules...)
	}
	return dst
}
