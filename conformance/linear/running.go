package linear

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/truewindow/ratelimit/conformance"
)

// CheckRunning is [Check] for a store whose clock runs, and whose answers may get lost:
//
//   - Operation.Now of an operation with Results is the store's clock when it decided. A recorder
//     can read it by a further demand in the same TakeAll, such as one under a FixedWindow. On a
//     Steady clock it never goes back from one operation to the next.
//   - An operation without Results is one whose outcome is unknown: it took effect at one instant
//     after its Call, however late, or never. The clock then was anywhere between those of the
//     operations before and after it.
//
// A state that a store may have forgotten must decide as if it were still there, which is so unless
// the clock steps back from beyond its end. Leave out cached refusals, which are older than their
// call, and operations that are known to have recorded nothing.
//
// An operation of unknown outcome may have taken effect at infinitely many instants. It is enough
// to try those that a result names (as now + ResetAfter - Window does), those at which units leave
// a window that an operation sees, and one between each two of these: two instants with none of
// these between them give the same results.
//
// An operation of unknown outcome that shows in no result is first assumed not to have happened. If
// there is no order then, all possibilities are tried, or ErrUndecided is returned if they are too
// many. The error of a history without an order is a [*Disorder].
//
// CheckRunning takes a minute and a half at most. It returns ErrUndecided at once if all times are
// whole milliseconds: too many operations then have the same time, and [driver.Store] requires
// microseconds.
func CheckRunning(history []conformance.Operation, clock Clock) error {
	for i, op := range history {
		if len(op.Demands) == 0 || len(op.Results) > 0 && len(op.Demands) != len(op.Results) {
			return malformed(i, op)
		}
	}
	if n := coarseTimes(history); n >= manyTimes {
		return fmt.Errorf("%w: the times of all %d answers are whole milliseconds, and the "+
			"clock of a store must have microseconds", ErrUndecided, n)
	}
	return checkRunning(history, clock, timeout)
}

// manyTimes is how many times are never whole milliseconds by chance.
const manyTimes = 16

// coarseTimes returns the number of answered operations if all have times of whole milliseconds,
// otherwise 0.
func coarseTimes(history []conformance.Operation) (n int) {
	for _, op := range history {
		if len(op.Results) == 0 {
			continue
		}
		if op.Now%1000 != 0 {
			return 0
		}
		n++
	}
	return n
}

// checkRunning takes up to three times limit.
func checkRunning(history []conformance.Operation, clock Clock, limit time.Duration) error {
	if newSearch(history, clock).check(time.Now().Add(limit)) == nil {
		return nil
	}
	until := shortest(history, clock, time.Now().Add(limit))
	deadline := time.Now().Add(limit)
	if errors.Is(newSearch(begun(history, until), clock).thoroughly().check(deadline),
		ErrNotLinearizable) {
		return &Disorder{until}
	}
	err := newSearch(history, clock).thoroughly().check(deadline)
	if errors.Is(err, ErrNotLinearizable) {
		return &Disorder{until: slices.MaxFunc(history, earlier).Return}
	}
	return err
}

// A Disorder is a history without an order. It wraps [ErrNotLinearizable].
type Disorder struct {
	until time.Duration
}

// Until returns a time at which there is no order any more: what had been called by then, with the
// results that had been returned by then, has none.
func (d *Disorder) Until() time.Duration { return d.until }

// Error says that there is no order.
func (d *Disorder) Error() string {
	return fmt.Sprintf("%v: lost at %v", ErrNotLinearizable, d.until)
}

// Unwrap returns ErrNotLinearizable.
func (d *Disorder) Unwrap() error { return ErrNotLinearizable }

func earlier(a, b conformance.Operation) int { return cmp.Compare(a.Return, b.Return) }

// begun returns what was known of history at an instant. Operations in flight have an unknown
// outcome.
func begun(history []conformance.Operation, until time.Duration) (known []conformance.Operation) {
	for _, op := range history {
		if op.Call > until {
			continue
		}
		if op.Return > until {
			op.Results = nil
		}
		known = append(known, op)
	}
	return known
}

// shortest returns the end of a short beginning of history that has no order either, as far as a
// hasty search finds one. history has no order.
func shortest(history []conformance.Operation, clock Clock, deadline time.Time) time.Duration {
	ends := slices.SortedFunc(slices.Values(history), earlier)
	low, high := 0, len(ends)-1
	for low < high {
		middle := (low + high) / 2
		if newSearch(begun(history, ends[middle].Return), clock).check(deadline) == nil {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return ends[low].Return
}
