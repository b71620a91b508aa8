package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/truewindow/ratelimit/cmd/ratelimit/algorithms"
	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/yamlfile"
)

// unknownKey says what is wrong with a key: which other one, or which algorithm, is near.
func unknownKey(key, what string, known []string) string {
	near := yamlfile.Suggest(key, known)
	if near == "" && slices.Contains(known, "algorithm") {
		near = strings.Replace(yamlfile.Suggest(key, algorithms.OfService()),
			"mean ", "mean algorithm: ", 1)
	}
	if near == "" {
		near = yamlfile.SuggestKey(key, known)
	}
	return fmt.Sprintf("unknown key %q in %s%s", key, what, near)
}

// Misspelt returns an entry of When that is not in Key, and the entry of Key alone that differs
// from it in one letter. One of the two is probably a mistake.
func (l *Limit) Misspelt() (when, key string, ok bool) {
	const shortest = 4 // shorter names may be near by chance
	for _, c := range l.When {
		for _, k := range l.Key {
			if min(len(c.Entry), len(k)) >= shortest && yamlfile.Distance(c.Entry, k) == 1 &&
				!slices.Contains(l.Key, c.Entry) && !slices.ContainsFunc(l.When,
				func(other Condition) bool { return other.Entry == k }) {
				return c.Entry, k, true
			}
		}
	}
	return "", "", false
}
