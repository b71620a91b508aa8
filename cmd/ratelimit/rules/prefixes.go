package rules

import (
	"slices"
	"strings"
)

// prefixes finds those of a set of texts with which a value begins.
type prefixes[T any] []prefix[T] // sorted by text

type prefix[T any] struct {
	text    string
	shorter int // index of the longest other text with which text begins, or -1
	under   T
}

func newPrefixes[T any](texts map[string]T) prefixes[T] {
	p := make(prefixes[T], 0, len(texts))
	for text, under := range texts {
		p = append(p, prefix[T]{text, -1, under})
	}
	slices.SortFunc(p, func(a, b prefix[T]) int { return strings.Compare(a.text, b.text) })
	for i := 1; i < len(p); i++ {
		p[i].shorter = p.longest(p[i].text, i)
	}
	return p
}

// longest returns the index of the longest of the first n texts with which a value begins, or -1.
// The value is not less than any of them. So the last of them begins with every text with which the
// value begins.
func (p prefixes[T]) longest(value string, n int) int {
	i := n - 1
	for i >= 0 && !strings.HasPrefix(value, p[i].text) {
		i = p[i].shorter
	}
	return i
}

// find returns the index of the longest text with which value begins, or -1. Its field shorter
// leads to the others.
func (p prefixes[T]) find(value string) int {
	n, found := slices.BinarySearchFunc(p, value, func(x prefix[T], value string) int {
		return strings.Compare(x.text, value)
	})
	if found {
		n++
	}
	return p.longest(value, n)
}
