package upstream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/truewindow/ratelimit"
)

var errNoURL = errors.New("upstream: the request has no URL")

// A LimitError says that a request was not sent because a limit or a cool-down refuses it for
// longer than it may wait.
//
//	if limited, ok := errors.AsType[*upstream.LimitError](err); ok {
//		// try again at limited.RetryAt
//	}
type LimitError struct {
	// Limit is the name of the limit, or of the cool-down. It is empty for a request whose context
	// ended while it was behind others of its process, before the store was asked for it.
	Limit string
	// CoolDown means that not a limit but the upstream itself has asked for the pause.
	CoolDown bool
	// RetryAt is when the request can be sent at the earliest, and can if nothing else is sent
	// meanwhile. It is zero if the context ended while the request waited.
	RetryAt time.Time
	// Err is why the request did not wait: it wraps context.DeadlineExceeded or context.Canceled.
	// It is nil with [Options.NoWait].
	Err error
}

// Error returns a text that names the limit and the time. It never has a key.
func (e *LimitError) Error() string {
	var s string
	switch {
	case e.Limit == "":
		s = "upstream: the request is behind others"
	case e.CoolDown:
		s = fmt.Sprintf("upstream: the upstream has asked for a pause (%s)", e.Limit)
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
func (t *Transport) failure(ctx context.Context, results []ratelimit.Result, err error) error {
	asked := len(results) > 0
	ended := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
	switch {
	case err != nil && (!ended || !asked && errors.Is(err, ratelimit.ErrUnavailable)):
		return fmt.Errorf("upstream: %w", err)
	case !asked:
		return &LimitError{Err: err}
	}
	limits, i := t.limiter.Limits(), ratelimit.Binding(results)
	e := &LimitError{Limit: limits[i].Name, CoolDown: i == len(limits)-1, Err: err}
	if ctx.Err() == nil { // the result is of now
		e.RetryAt = time.Now().Add(results[i].RetryAfter)
	}
	return e
}
