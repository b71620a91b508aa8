package linear

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/conformance"
)

// A Clock is what is known of the clock of a store.
type Clock int

// The clocks.
const (
	held Clock = iota // stands still between Call and Return of every operation

	// Steady never steps back.
	Steady
	// Stepped may step, back and forth.
	Stepped
)

// CheckRunning is [Check] for a store whose clock nobody holds, and whose answers get lost. Instead of Operation.Now it goes by the stamps:
//
//   - The clock of an answered operation is the At of its results, on which all of them must agree. On a Steady clock it never goes back from one
//     operation to the next. A Stepped clock may be behind the newest stamp, which At is then; how far is in ResetAfter.
//   - An operation without Results is one whose outcome is unknown: it took effect at one instant after its Call, however late, or never. The
//     clock then was anywhere between those of the operations before and after it.
//
// That goes for algorithms whose results have the clock in At, as the log has at a Resolution of 1µs. A state that a store may have forgotten
// must decide as if it were still there, which is so unless the clock steps back from beyond its end. Refusals from a cache are about an earlier instant than
// that of their call and do not belong into history, nor do operations of which it is known that nothing was recorded.
//
// There are infinitely many instants for an unknown outcome, of which it is enough to try some: all that a result names (as now + ResetAfter -
// Window does), all at which something leaves a window that an operation sees, and one between each two of these. Two instants without one of them in between are
// told apart by no result.
//
// An operation of unknown outcome that nothing tells of is taken not to have happened yet. Should no order be found so, all possibilities
// are tried, or ErrUndecided is returned if they are too many. The error of a history without an order is a [*Disorder].
func CheckRunning(history []conformance.Operation, clock Clock) error {
	for i, op := range history {
		if len(op.Demands) == 0 || len(op.Results) > 0 && len(op.Demands) != len(op.Results) {
			return malformed(i, op)
		}
	}
	if newSearch(history, clock).check() == nil {
		return nil
	}
	until := shortest(history, clock)
	if errors.Is(newSearch(begun(history, until), clock).thoroughly().check(), ErrNotLinearizable) {
		return &Disorder{until}
	}
	err := newSearch(history, clock).thoroughly().check()
	if errors.Is(err, ErrNotLinearizable) {
		return &Disorder{until: slices.MaxFunc(history, earlier).Return}
	}
	return err
}

// A Disorder is a history without an order. It wraps [ErrNotLinearizable].
type Disorder struct {
	until time.Duration
}

// Until returns by when it was lost: what had been called by then, with the results that had been returned by then, has no order.
func (d *Disorder) Until() time.Duration { return d.until }

// Error says that there is no order.
func (d *Disorder) Error() string { return fmt.Sprintf("%v: lost at %v", ErrNotLinearizable, d.until) }

// Unwrap returns ErrNotLinearizable.
func (d *Disorder) Unwrap() error { return ErrNotLinearizable }

func earlier(a, b conformance.Operation) int { return cmp.Compare(a.Return, b.Return) }

// begun returns what was known of history at an instant. Operations under way have an unknown outcome.
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

// shortest returns the end of a short beginning of history, which has no order, that has none either as far as is found in haste.
func shortest(history []conformance.Operation, clock Clock) time.Duration {
	ends := slices.SortedFunc(slices.Values(history), earlier)
	low, high := 0, len(ends)-1
	for low < high {
		middle := (low + high) / 2
		if newSearch(begun(history, ends[middle].Return), clock).check() == nil {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return ends[low].Return
}

// name notes the instants that results name: readings of the clock, stamps of records, and when what an operation sees leaves a window.
func (s *search) name() {
	for _, op := range s.ops {
		for _, now := range s.nows(op) {
			for i, res := range op.Results {
				named := append(s.named[op.states[i]], now, res.At)
				for _, w := range s.windows {
					named = append(named, now-w, now-w+1)
					for _, wait := range []time.Duration{res.ResetAfter, res.RetryAfter} {
						if wait > 0 {
							named = append(named, now+wait.Microseconds()-w)
						}
					}
				}
				s.named[op.states[i]] = named
			}
		}
	}
	for i := range s.named {
		slices.Sort(s.named[i])
		s.named[i] = slices.Compact(s.named[i])
	}
}

// nows returns what the clock may have been when op was answered.
func (s *search) nows(op operation) []int64 {
	if s.clock == held {
		return []int64{op.Now}
	}
	var nows []int64
	for _, res := range op.Results {
		nows = append(nows, res.At)
		for _, w := range s.windows {
			if now := res.At + w - res.ResetAfter.Microseconds(); s.clock == Stepped && res.ResetAfter > 0 && now < res.At {
				nows = append(nows, now)
			}
		}
	}
	slices.Sort(nows)
	return slices.Compact(nows)
}

// between returns the instants to try for an operation of unknown outcome on some states. On a Steady clock they are from from, which is 0
// where nothing is known, to until.
func (s *search) between(states []int, from, until int64) (instants []int64) {
	var named []int64
	for _, n := range states {
		all := s.named[n]
		if s.clock == Steady {
			first, _ := slices.BinarySearch(all, from)
			end, _ := slices.BinarySearch(all, until)
			all = all[min(first, end):end]
		}
		named = append(named, all...)
	}
	if s.clock == Steady {
		if from == 0 {
			from = slices.Min(append(named, until)) - 1
		}
		named = append(named, from, until)
	}
	slices.Sort(named)
	named = slices.Compact(named)
	for i, t := range named {
		instants = append(instants, t)
		if i+1 < len(named) && named[i+1] > t+1 && (s.thorough || t == from) {
			instants = append(instants, t+1)
		}
	}
	return instants
}

// effective tells whether an operation of unknown outcome may change a state.
func (s *search) effective(op conformance.Operation) bool {
	return s.clock != Steady || slices.ContainsFunc(op.Demands, func(d ratelimit.Demand) bool { return d.Op != ratelimit.Look })
}
