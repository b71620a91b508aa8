// Package algorithms lists the module's algorithms under the names that commands use.
package algorithms

import (
	"fmt"
	"slices"
	"strings"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

// table has an entry for each algorithm, the exact log first.
var table = []Named{
	{"log", func(l driver.Limit) driver.Algorithm { return algorithm.SlidingLog(l) }},
	{"gcra", func(l driver.Limit) driver.Algorithm { return algorithm.GCRA(l) }},
	{"fixed", func(l driver.Limit) driver.Algorithm { return algorithm.FixedWindow(l) }},
	{"counter", func(l driver.Limit) driver.Algorithm {
		return algorithm.SlidingWindowCounter(l)
	}},
}

// Named is an algorithm with its name for users.
type Named struct {
	Name string
	New  func(driver.Limit) driver.Algorithm
}

// All returns all algorithms, the exact log first.
func All() []Named { return slices.Clone(table) }

// ByName returns the algorithm with a name. An unknown name is an error that wraps
// [driver.ErrInvalid].
func ByName(name string) (Named, error) {
	for _, n := range table {
		if n.Name == name {
			return n, nil
		}
	}
	return Named{}, fmt.Errorf("%w options: %q is not an algorithm; the algorithms are %s",
		driver.ErrInvalid, name, strings.Join(Names(), ", "))
}

// Names returns all names, the exact log's first.
func Names() []string {
	names := make([]string, len(table))
	for i, n := range table {
		names[i] = n.Name
	}
	return names
}
