package httplimit

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/httplimit/headers"
)

// A Decision is what the limits of a request answered. It holds no key.
type Decision struct {
	// Items has each limit of the request with its result: those of the first claim in the order of
	// its limiter's Limits, then those of the next. Do not change them. It is empty beside an Err.
	Items []headers.Item
	// Err is why the request is undecided, or nil. It wraps [ErrUnattributed] or is an error of
	// [ratelimit.AllowAll]. Clients should not see its text.
	Err error

	blocks map[string]bool // names of limits that block
	ended  bool            // the request's context had ended
}

// Allowed reports whether the request is passed on: it is decided, and all limits admit it.
func (d Decision) Allowed() bool {
	if d.Err != nil {
		return false
	}
	for i := range d.Items {
		if !d.Items[i].Result.Allowed {
			return false
		}
	}
	return true
}

// RetryAfter returns when the request may be repeated, at least a second from now, or 0 if waiting
// does not help or the request is allowed. It is the longest RetryAfter of the limits that refused.
// Calls in flight do not count, since they mostly end long before the RetryAfter of their limit.
func (d Decision) RetryAfter() time.Duration {
	if d.Err != nil {
		if d.Status() == http.StatusServiceUnavailable && !d.ended {
			// How long the store will be away is not known: this is the shortest that HTTP has.
			return time.Second
		}
		return 0
	}
	var wait time.Duration
	for i := range d.Items {
		it := &d.Items[i]
		if it.Result.Allowed {
			continue
		}
		wait = max(wait, time.Second)
		if it.Unit != headers.ConcurrentRequests {
			wait = max(wait, it.Result.RetryAfter)
		}
	}
	return wait
}

// Status returns the status with which [Refuse] answers, and 200 if the request is allowed; see the
// package comment.
func (d Decision) Status() int {
	switch {
	case d.Err == nil && d.Allowed():
		return http.StatusOK
	case d.Err == nil && d.reduced():
		return http.StatusServiceUnavailable
	case d.Err == nil:
		return http.StatusTooManyRequests
	case d.ended:
		return http.StatusServiceUnavailable
	case errors.Is(d.Err, ErrUnattributed):
		return http.StatusBadRequest
	case errors.Is(d.Err, ratelimit.ErrUnavailable):
		return http.StatusServiceUnavailable
	case errors.Is(d.Err, ratelimit.ErrExceedsLimit):
		return http.StatusUnprocessableEntity
	}
	return http.StatusInternalServerError
}

// reduced reports whether no limit refuses but those that a degraded store has reduced.
func (d Decision) reduced() bool {
	for i := range d.Items {
		it := &d.Items[i]
		if !it.Result.Allowed && (it.Result.Source != ratelimit.SourceLocal ||
			it.Result.Limit >= it.Limit.Max) {
			return false
		}
	}
	return true
}

// blocked reports whether one of the limits that refuse blocks.
func (d Decision) blocked() bool {
	for i := range d.Items {
		if it := &d.Items[i]; !it.Result.Allowed && d.blocks[it.Limit.Name] {
			return true
		}
	}
	return false
}

// violated returns the names of the limits that refuse.
func (d Decision) violated() (names []string) {
	for i := range d.Items {
		if !d.Items[i].Result.Allowed {
			names = append(names, d.Items[i].Limit.Name)
		}
	}
	return names
}

type decisionKey struct{}

// FromContext returns the decision about the request whose context is ctx or one that ctx comes
// from: that of the innermost middleware of this package that limited it. It returns false if the
// request was not limited.
func FromContext(ctx context.Context) (Decision, bool) {
	if d, ok := ctx.Value(decisionKey{}).(*Decision); ok {
		return *d, true
	}
	return Decision{}, false
}
