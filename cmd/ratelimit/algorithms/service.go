package algorithms

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

// Algorithms of limits of the service that are not in the table.
const (
	Bucket   = "bucket"    // the table has it as gcra
	Week     = "week"      // calendar weeks
	Month    = "month"     // calendar months
	Quarter  = "quarter"   // calendar quarters
	InFlight = "in-flight" // units held at once
	Block    = "block"     // blocked keys
)

var service = []string{"log", Bucket, fixed, "counter", Week, Month, Quarter, InFlight, Block}

const fixed = "fixed"

// IsCalendar reports whether the windows of an algorithm are those of the calendar, so that a rate
// has none.
func IsCalendar(name string) bool { return name == Week || name == Month || name == Quarter }

// IsFixed reports whether an algorithm counts in windows that begin at the same times for all keys.
func IsFixed(name string) bool { return name == fixed || IsCalendar(name) }

// OfService returns the names of the algorithms that limits of the service have, the exact log's
// first.
func OfService() []string { return slices.Clone(service) }

// Options are what an algorithm has beside its limit.
type Options struct {
	// Holds is for how long units can be held by default; 0: not at all, and for InFlight a minute.
	Holds time.Duration
	// Charges lets what times out be charged, if units can be held.
	Charges bool
	// Debt is that of a bucket; 0: the longest. Others ignore it.
	Debt time.Duration
	// Offset is added to the beginnings of windows of fixed and of a calendar. Others ignore it.
	Offset time.Duration
	// Starts is the day on which windows of a calendar begin: from 1 to 31 of the month, or from 1,
	// Monday, to 7 of the week. 0 is 1. Others ignore it.
	Starts int
}

// New returns the algorithm of a limit of the service. A calendar and InFlight ignore the Window of
// the limit, and Block its Max: its Window is the longest block. An error wraps
// [driver.ErrInvalid].
func New(name string, limit driver.Limit, o Options) (driver.Algorithm, error) {
	a, err := withoutHolds(name, limit, o.Starts)
	if err != nil {
		return nil, err
	}
	switch b := a.(type) {
	case algorithm.Bucket:
		a = b.WithDebt(o.Debt)
	case algorithm.Fixed:
		a = b.WithOffset(o.Offset)
	}
	if held, ok := a.(algorithm.Held); ok && o.Holds != 0 {
		a = held.WithTimeout(o.Holds)
	} else if o.Holds != 0 {
		if name == Block {
			return nil, fmt.Errorf("%w limit: a block holds no units", driver.ErrInvalid)
		}
		budget := algorithm.Budget(a).WithTimeout(o.Holds)
		if o.Charges {
			budget = budget.ChargeTimeouts()
		}
		a = budget
	}
	if err := a.Validate(); err != nil {
		return nil, err
	}
	return a, nil
}

func withoutHolds(name string, limit driver.Limit, starts int) (driver.Algorithm, error) {
	starts = cmp.Or(starts, 1)
	switch name {
	case Bucket:
		return algorithm.GCRA(limit), nil
	case Week:
		if starts < 1 || starts > 7 {
			return nil, fmt.Errorf("%w limit: a week starts on a day from 1 to 7, not %d",
				driver.ErrInvalid, starts)
		}
		return algorithm.Weekly(limit.Name, limit.Max, time.Weekday(starts%7)), nil
	case Month:
		return algorithm.Monthly(limit.Name, limit.Max).WithDay(starts), nil
	case Quarter:
		return algorithm.Quarterly(limit.Name, limit.Max).WithDay(starts), nil
	case InFlight:
		return algorithm.InFlight(limit.Name, limit.Max), nil
	case Block:
		return algorithm.Blocking(limit.Name, limit.Window), nil
	}
	if !slices.Contains(service, name) {
		return nil, fmt.Errorf("%w limit: %q is not an algorithm; the algorithms are %s",
			driver.ErrInvalid, name, strings.Join(service, ", "))
	}
	named, err := ByName(name)
	if err != nil {
		return nil, err
	}
	return named.New(limit), nil
}
