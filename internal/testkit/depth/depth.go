// Package depth says how often tests repeat and what they combine. CONTRIBUTING.md has a table of
// the depths.
package depth

import "os"

// Full is whether the environment asks for the longest form of every test.
var Full = os.Getenv("RATELIMIT_FULL") != ""

// Of returns usual, or full in a full run: how often a test repeats, how many calls it makes, or
// how long it lasts.
func Of[T any](usual, full T) T {
	if Full {
		return full
	}
	return usual
}
