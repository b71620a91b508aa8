package rules

import (
	"slices"
	"time"

	"go.yaml.in/yaml/v3"
)

// until reads when an exception ends.
func (f *file) until(n *yaml.Node) time.Time {
	text, ok := f.scalar(n, "until")
	if !ok {
		return time.Time{}
	}
	until, err := time.Parse(time.RFC3339, text)
	if err != nil || until.IsZero() {
		f.Add(n, "until is a time with its offset, such as 2026-12-04T18:00:00+01:00, not %q", text)
	}
	return until
}

// temporaryFirst puts exceptions that end before others, whose requests they are for, and keeps the
// order among them.
func temporaryFirst(exceptions []Exception) {
	slices.SortStableFunc(exceptions, func(a, b Exception) int {
		switch {
		case a.Until.IsZero() == b.Until.IsZero():
			return 0
		case b.Until.IsZero():
			return -1
		}
		return 1
	})
}

// Over reports whether the exception has ended at a time.
func (e *Exception) Over(now time.Time) bool {
	return !e.Until.IsZero() && !now.Before(e.Until)
}

// outlasts reports whether e ends with other, or later, or never.
func (e *Exception) outlasts(other *Exception) bool {
	return e.Until.IsZero() || !other.Until.IsZero() && !e.Until.Before(other.Until)
}

// String returns what the exception is for, such as tenant=acme until 2026-12-04T18:00:00+01:00.
func (e *Exception) String() string {
	if e.Until.IsZero() {
		return join(e.When)
	}
	return join(e.When) + " until " + e.Until.Format(time.RFC3339Nano)
}

// ends returns when exceptions end, or nil if none does.
func ends(exceptions []Exception) (until []time.Time) {
	for i, e := range exceptions {
		if e.Until.IsZero() {
			continue
		}
		if until == nil {
			until = make([]time.Time, len(exceptions))
		}
		until[i] = e.Until
	}
	return until
}

// current returns exceptions without those that are over.
func (c *compiled) current(exceptions []int) []int {
	if c.until == nil || len(exceptions) == 0 {
		return exceptions
	}
	return slices.DeleteFunc(exceptions, c.over)
}

// over reports whether an exception of a limit with c.until is over, by the clock of the process.
func (c *compiled) over(i int) bool {
	return !c.until[i].IsZero() && !time.Now().Before(c.until[i])
}
