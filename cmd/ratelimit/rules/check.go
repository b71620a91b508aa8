package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/truewindow/ratelimit/cmd/ratelimit/algorithms"
	"github.com/truewindow/ratelimit/driver"
)

// checkNames returns a problem for each limit whose name an earlier one has.
func checkNames(limits []*Limit) Problems {
	var problems Problems
	named := make(map[string]*Limit, len(limits))
	for _, l := range limits {
		if first := named[l.Name]; first != nil && l.Name != "" {
			text := fmt.Sprintf("another limit has the name %q", l.Name)
			if first.At != (Position{}) {
				text += ", at " + first.At.String()
			}
			problems = append(problems, Problem{At: l.At, Text: text})
			continue
		}
		named[l.Name] = l
	}
	return problems
}

// checkLimit returns what is wrong with a limit apart from its rates.
func checkLimit(l *Limit) Problems {
	var problems Problems
	add := func(format string, args ...any) {
		problems = append(problems, Problem{At: l.At, Text: fmt.Sprintf(format, args...)})
	}
	if l.Name == "" {
		add("the limit has no name")
	} else if err := driver.PerSecond(l.Name, 1).Validate(); err != nil {
		add("%s", textOf(err))
	}
	if known := algorithms.OfService(); !slices.Contains(known, cmp.Or(l.Algorithm, "log")) {
		add("%q is not an algorithm; the algorithms are %s", l.Algorithm,
			strings.Join(known, ", "))
	}
	if l.Lease != nil && !(*l.Lease >= 0 && *l.Lease <= .1) {
		add("lease is not between 0%% and 10%%")
	}
	if !(l.Warn >= 0 && l.Warn <= 1) {
		add("warn is not between 0%% and 100%%")
	}
	if l.Always && (l.Algorithm == algorithms.InFlight || l.Algorithm == algorithms.Block) {
		add("charge: always is not for calls in flight and blocks, which have no units to record")
	}
	if l.Shadow && l.Algorithm == algorithms.InFlight {
		// Only the id of a decision ends calls in flight, and a shadow has no part in it.
		add("mode: shadow is not for calls in flight")
	}
	if l.OnFailure != "" && l.OnFailure != "closed" && l.OnFailure != "open" {
		add("on_failure %q of a limit is not closed or open", l.OnFailure)
	}
	return problems
}
