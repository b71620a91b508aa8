package rules

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// implies reports whether every value that matches c matches d, which is on the same entry.
func (c condition) implies(d condition) bool {
	if d.prefix {
		return strings.HasPrefix(c.pattern, d.pattern)
	}
	return !c.prefix && c.pattern == d.pattern
}

// excludes reports whether no value matches both c and d, which is on the same entry.
func (c condition) excludes(d condition) bool {
	switch {
	case c.prefix && d.prefix:
		return !strings.HasPrefix(c.pattern, d.pattern) && !strings.HasPrefix(d.pattern, c.pattern)
	case c.prefix:
		return !strings.HasPrefix(d.pattern, c.pattern)
	default:
		return !c.implies(d)
	}
}

// imply reports whether every request that matches all of known matches all of conditions.
func imply(known, conditions []condition) bool {
	for _, d := range conditions {
		if !slices.ContainsFunc(known, func(c condition) bool {
			return c.entry == d.entry && c.implies(d)
		}) {
			return false
		}
	}
	return true
}

// contradiction returns a condition of known that never holds together with one of conditions.
func contradiction(known, conditions []condition) (condition, bool) {
	for _, d := range conditions {
		for _, c := range known {
			if c.entry == d.entry && c.excludes(d) {
				return c, true
			}
		}
	}
	return condition{}, false
}

// checkReach appends a problem for each rate that no request gets.
func (s *Set) checkReach(problems *Problems) {
	for i := range s.limits {
		if s.compiled[i].max != nil { // else the limit has problems
			*problems = append(*problems, s.unreachable(i)...)
		}
	}
}

// unreachable returns a problem for each rate of a limit that no request gets, and for conditions
// that contradict each other.
func (s *Set) unreachable(i int) Problems {
	u := reach{limit: s.limits[i], compiled: &s.compiled[i], known: s.conditions(s.limits[i]),
		names: s.names}
	if c, ok := contradiction(u.known, u.known); ok {
		u.add(u.limit.At, "the conditions contradict each other: no request has %s and another "+
			"condition of the limit", u.text(c))
		return u.problems
	}
	all := u.exceptions()
	if u.limit.By != nil && !all {
		u.plans()
	}
	return u.problems
}

// reach finds what is unreachable of one limit.
type reach struct {
	limit    *Limit
	compiled *compiled
	known    []condition // what every request of the limit matches
	names    names
	problems Problems
}

func (u *reach) add(at Position, format string, args ...any) {
	u.problems = append(u.problems, Problem{At: at, Text: fmt.Sprintf(format, args...)})
}

func (u *reach) text(c condition) string {
	for name, number := range u.names {
		if number == c.entry {
			return Condition{name, c.pattern, c.prefix}.String()
		}
	}
	return ""
}

// exceptions checks the exceptions, and reports whether one matches all requests.
func (u *reach) exceptions() (all bool) {
	for i, e := range u.limit.Except {
		conditions := u.names.conditions(e.When)
		if c, ok := contradiction(slices.Concat(u.known, conditions), conditions); ok {
			u.add(e.At, "this exception matches no request, since the limit is for %s only",
				u.text(c))
			continue
		}
		first := u.compiled.except.firstImplied(slices.Concat(u.known, conditions), i)
		if first < i {
			u.add(e.At, "this exception is never reached: that at %v matches all its requests",
				u.limit.Except[first].At)
			continue
		}
		if !all && imply(u.known, conditions) {
			all = true
			u.add(e.At, "this exception matches every request of the limit: write its max as that "+
				"of the limit")
		}
	}
	return all
}

func (u *reach) plans() {
	by, all := u.limit.By, len(u.limit.Except)
	for _, value := range slices.Sorted(maps.Keys(by.Rates)) {
		plan := []condition{{entry: u.compiled.entry, pattern: value}}
		if c, ok := contradiction(u.known, plan); ok {
			u.add(by.At, "%s matches no request, since the limit is for %s only", u.text(plan[0]),
				u.text(c))
			continue
		}
		if all > 0 {
			first := u.compiled.except.firstImplied(slices.Concat(u.known, plan), all)
			if first < all {
				u.add(by.At, "%s is never reached: the exception at %v matches all its requests",
					u.text(plan[0]), u.limit.Except[first].At)
				continue
			}
		}
		if imply(u.known, plan) {
			u.add(by.At, "%s matches every request of the limit: write its rate as max",
				u.text(plan[0]))
		}
	}
}
