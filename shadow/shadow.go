// Package shadow tries a limit, an algorithm or a store before you rely on it: it repeats the calls
// of a limiter on another one, and compares the results.
package shadow

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/driver"
)

// maxCalls is how many calls of a trial may be in flight at the same time.
const maxCalls = 1000

// An Observation is a decision of the trial. Its Key is user data, and its Results are valid only
// until the observer returns.
type Observation struct {
	ratelimit.Observation
	// Live has the results of the limiter that is shadowed; nil if it returned an error.
	Live []ratelimit.Result
	// Dropped is how many calls were not repeated since the observation before, because 1,000 were
	// in flight.
	Dropped int64
}

// A PanicError is the Err of an [Observation] when the trial's store or algorithm has panicked.
type PanicError struct {
	Value any    // the value of the panic; it may hold the key
	Stack []byte // the stack, as [runtime/debug.Stack] returns it
}

// Error returns a text without the Value.
func (*PanicError) Error() string { return "ratelimit: the shadow has panicked" }

// New returns an observer for live, which repeats the takes of live on trial:
//
//	observer, err := shadow.New(live, trial, report)
//	…
//	live = live.WithObserver(observer)
//
// Callers of live do not wait for trial, and their results do not depend on it. report gets each
// decision of trial, and must be safe for concurrent use; a panic in it is dropped. Claims that
// were refused only because of another claim, renewals, settlements and Force are not repeated: the
// trial of a budget counts estimates, and that of calls in flight counts each until it has left the
// window. An extension of a reservation is repeated as a take of all units that it holds then, and
// a claim with a Least as one of the units that it got, or of its Least.
//
// An error wraps [ratelimit.ErrInvalid] if an argument is nil, if trial limits calls in flight,
// which have no takes, or if both limiters have a limit of the same name: on one store, or on two
// that end at one server, both could count in one history.
func New(
	live, trial *ratelimit.Limiter, report func(context.Context, Observation),
) (func(context.Context, ratelimit.Observation), error) {
	if live == nil || trial == nil || report == nil {
		return nil, fmt.Errorf("%w options: the shadow has a nil argument", ratelimit.ErrInvalid)
	}
	for _, l := range trial.Limits() {
		if slices.ContainsFunc(live.Limits(), func(o ratelimit.Limit) bool {
			return o.Name == l.Name
		}) {
			return nil, fmt.Errorf("%w options: the limit of a shadow needs a name other than %q",
				ratelimit.ErrInvalid, l.Name)
		}
	}
	for _, a := range trial.Algorithms() {
		if h, ok := a.(driver.Holder); ok && h.InFlight() {
			return nil, fmt.Errorf("%w options: the limit %q of a shadow is of calls in flight",
				ratelimit.ErrInvalid, a.Limit().Name)
		}
	}
	s := &shadow{trial: trial, report: report, slots: make(chan struct{}, maxCalls)}
	return s.observe, nil
}

// shadow repeats the takes of one limiter on another.
type shadow struct {
	trial   *ratelimit.Limiter
	report  func(context.Context, Observation)
	slots   chan struct{} // of its calls
	dropped atomic.Int64  // calls since the last observation
}

// observe starts the call of the trial, and does not wait for it.
func (s *shadow) observe(ctx context.Context, o ratelimit.Observation) {
	takes := o.Op == driver.OpTake || o.Op == driver.OpHold && o.N > 0
	if !takes || refusedByOther(o) {
		return
	}
	select {
	case s.slots <- struct{}{}:
	default:
		s.dropped.Add(1)
		return
	}
	var live []ratelimit.Result
	if o.Err == nil {
		live = slices.Clone(o.Results)
	}
	key := strings.Clone(o.Key)
	go func() {
		defer func() { <-s.slots }()
		s.compare(context.WithoutCancel(ctx), key, o.N, live)
	}()
}

// refusedByOther reports whether a call fits under its own limits, and was refused by those of
// another claim.
func refusedByOther(o ratelimit.Observation) bool {
	return o.Err == nil && !o.Admitted && o.Results[ratelimit.Binding(o.Results)].Allowed
}

// compare makes the call, and reports it. It recovers from any panic, since no caller may depend on
// a trial.
func (s *shadow) compare(ctx context.Context, key string, n int64, live []ratelimit.Result) {
	defer func() { _ = recover() }() // of report: there is nothing to report it to
	began := time.Now()
	results, err := s.ask(ctx, key, n)
	if err != nil {
		results = make([]ratelimit.Result, len(s.trial.Limits()))
	}
	s.report(ctx, Observation{
		Observation: ratelimit.Observation{
			Key: key, Op: driver.OpTake, N: n, Limits: s.trial.Limits(), Results: results,
			Err: err, Elapsed: time.Since(began),
			Admitted: err == nil && results[ratelimit.Binding(results)].Allowed,
		},
		Live: live, Dropped: s.dropped.Swap(0),
	})
}

// ask calls the trial, and returns a panic as an error.
func (s *shadow) ask(
	ctx context.Context, key string, n int64,
) (results []ratelimit.Result, err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &PanicError{value, debug.Stack()}
		}
	}()
	return ratelimit.AllowAll(ctx, ratelimit.Claim{Limiter: s.trial, Key: key, N: n})
}
