package upstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/truewindow/ratelimit"
)

var errNoURL = errors.New("upstream: the request has no URL")

// A LimitError means that a request was not sent because a limit or a cool-down refuses it for
// longer than it may wait, or because its context ended while it waited.
//
//	var limited *upstream.LimitError
//	if errors.As(err, &limited) {
//		// try again at limited.RetryAt
//	}
type LimitError struct {
	// Limit is the name of the limit, or of the cool-down. It is empty if the context ended while
	// the request waited behind others of its process, before the store was called for it.
	Limit string
	// CoolDown reports that a cool-down refuses the request, and not a limit.
	CoolDown bool
	// RetryAt is the time at which the request can be sent if nothing else is sent meanwhile, by
	// the clock of this process. It is zero if the context ended while the request waited.
	RetryAt time.Time
	// Err is the reason why the request did not wait longer: it wraps context.DeadlineExceeded or
	// context.Canceled. It is nil with [Options.NoWait].
	Err error
}

// Error returns a text with the name of the limit and the time to try again, if they are known. It
// does not contain the key.
func (e *LimitError) Error() string {
	var s string
	switch {
	case e.Limit == "":
		s = "upstream: the request waited behind others"
	case e.CoolDown:
		s = fmt.Sprintf("upstream: no request may be sent during the cool-down %s", e.Limit)
	default:
		s = fmt.Sprintf("upstream: the limit %s is used up", e.Limit)
	}
	if !e.RetryAt.IsZero() {
		s += ": try again at " + e.RetryAt.UTC().Format("2006-01-02T15:04:05.000Z07:00")
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns Err.
func (e *LimitError) Unwrap() error { return e.Err }

// failure returns the error of a request that was refused, or whose decision failed with err.
func failure(ctx context.Context, results []ratelimit.Result, err error) error {
	asked := len(results) > 0
	ended := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
	switch {
	case err != nil && (!ended || !asked && errors.Is(err, ratelimit.ErrUnavailable)):
		return fmt.Errorf("upstream: %w", err)
	case !asked:
		return &LimitError{Err: err}
	}
	i := ratelimit.Binding(results)
	e := &LimitError{Limit: results[i].Limit.Name, CoolDown: i == len(results)-1, Err: err}
	if ctx.Err() == nil { // the result is current
		e.RetryAt = time.Now().Add(results[i].RetryAfter)
	}
	return e
}
