package rules

import (
	"fmt"
	"maps"
	"slices"
)

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
	u := reach{set: s, limit: s.limits[i], compiled: &s.compiled[i],
		known: s.conditions(s.limits[i])}
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
	set      *Set
	limit    *Limit
	compiled *compiled
	known    []condition // what every request of the limit matches
	problems Problems
}

func (u *reach) add(at Position, format string, args ...any) {
	u.problems = append(u.problems, Problem{At: at, Text: fmt.Sprintf(format, args...)})
}

func (u *reach) text(c condition) string {
	for name, number := range u.set.names {
		if number == c.entry {
			return Condition{name, c.pattern, c.prefix, c.among}.String()
		}
	}
	return ""
}

// exceptions checks the exceptions, and reports whether one matches all requests for good.
func (u *reach) exceptions() (all bool) {
	for i, e := range u.limit.Except {
		conditions := u.set.names.conditions(e.When)
		if c, ok := contradiction(slices.Concat(u.known, conditions), conditions); ok {
			u.add(e.At, "this exception matches no request, since the limit is for %s only",
				u.text(c))
			continue
		}
		first := u.firstImplied(conditions, i, func(j int) bool {
			return u.limit.Except[j].outlasts(&e)
		})
		if first < i {
			u.add(e.At, "this exception is never reached: that at %v matches all its requests",
				u.limit.Except[first].At)
			continue
		}
		if !all && e.Until.IsZero() && imply(u.known, conditions) {
			all = true
			u.add(e.At, "this exception matches every request of the limit: write its max as that "+
				"of the limit")
		}
	}
	return all
}

// firstImplied returns the least number of an exception that counts and matches every request of
// the limit which matches conditions, if it is less than least, or least.
func (u *reach) firstImplied(conditions []condition, least int, counts func(int) bool) int {
	k := u.set.know(slices.Concat(u.known, conditions))
	return u.compiled.except.firstImplied(k, least, counts)
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
			first := u.firstImplied(plan, all, func(j int) bool {
				return u.limit.Except[j].Until.IsZero()
			})
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
