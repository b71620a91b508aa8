package edge

import (
	"context"
	"errors"
	"time"

	"github.com/truewindow/ratelimit"
)

// Do decides claims as [Call.Decide] does and, if they are admitted, calls f. When f has ended, by
// a panic too, it settles the call as [Call.Settle] does. Units under Budgets are then kept, unless
// f has returned an error. Do returns the error of f, or without a call of f a [*RefusedError].
// Without claims it only calls f.
func Do(
	ctx context.Context, claims []ratelimit.Claim, opts Options, f func(context.Context) error,
) error {
	if len(claims) == 0 {
		return f(ctx)
	}
	var call Call
	err := call.Decide(ctx, claims, opts)
	if err != nil || !call.Allowed() {
		return &RefusedError{call.Refusal(ctx, claims, err, nil), err}
	}
	keep := true // also if f panics
	defer func() { call.Settle(ctx, keep) }()
	err = f(ctx)
	keep = err == nil
	return err
}

// A RefusedError is the error of a call that [Do] has not made.
type RefusedError struct {
	Refusal Refusal
	Err     error // of Decide, or nil if a limit refused
}

// Error returns the message of [Refusal.Status] or, if there is an error of Decide, the reason and
// that error.
func (e *RefusedError) Error() string {
	if e.Err != nil {
		return "edge: " + e.Refusal.Reason.String() + ": " + e.Err.Error()
	}
	return e.Refusal.Status(0).Message
}

// Unwrap returns Err.
func (e *RefusedError) Unwrap() error { return e.Err }

// unknownWait is how long to wait for what no limit says, such as for a store that is unavailable.
const unknownWait = time.Second

// RetryAfter reports whether err wraps a [*RefusedError] of a call that may be admitted later, and
// after how long: the Refusal's RetryAfter, or a second if that is not known. It reports false if
// waiting does not help, if the call's context has ended, and for errors of other kinds. So a
// worker puts a job back if ok is true, and otherwise treats err as a failure.
func RetryAfter(err error) (wait time.Duration, ok bool) {
	var refused *RefusedError
	if !errors.As(err, &refused) {
		return 0, false
	}
	switch refused.Refusal.Reason {
	case Exceeded, Blocked, Reduced, Undecided:
		wait = refused.Refusal.RetryAfter
		if wait == 0 {
			wait = unknownWait
		}
		return wait, true
	}
	return 0, false
}
