package httplimit

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/edge"
	"github.com/truewindow/ratelimit/httplimit/headers"
)

// A Decision is what the limits of a request have decided. It does not contain the key.
//
// One of Results or an Err that a program makes by hand is for [Refuse]. It counts calls in flight
// like other limits, and knows neither blocks nor whether a degraded store has reduced a limit.
type Decision struct {
	// Results has the result of each limit of the request: first those of the first claim, in the
	// order of its limiter's Limits. It is empty if Err is not nil. Do not change it.
	Results []ratelimit.Result
	// Err is why the request is undecided, or nil. It wraps [ErrUnattributed] or an error of
	// [ratelimit.AllowAll], or says that a claim has no limiter. Do not show its text to clients.
	Err error

	kinds   []kind          // of Results; nil if all are the zero kind
	blocks  map[string]bool // names of limits that are blocks
	ended   bool            // the request's context had ended
	reduced bool            // a degraded store has reduced all limits that refuse
}

// Allowed reports whether the request is passed on: it is decided, and all limits admit it.
func (d Decision) Allowed() bool {
	if d.Err != nil {
		return false
	}
	for i := range d.Results {
		if !d.Results[i].Allowed {
			return false
		}
	}
	return true
}

// kind says what a limit counts, and whether the request's units are held until it has ended.
type kind struct {
	unit headers.Unit
	held bool
}

// setKind sets the kind of the limit at index i.
func (d *Decision) setKind(i int, k kind) {
	if k == (kind{}) {
		return
	}
	if d.kinds == nil {
		d.kinds = make([]kind, len(d.Results))
	}
	d.kinds[i] = k
}

// kind returns the kind of the limit at index i.
func (d Decision) kind(i int) kind {
	if d.kinds == nil {
		return kind{}
	}
	return d.kinds[i]
}

// appendItems appends what the fields of package headers tell about the limits: all but blocks and,
// if the request is allowed, those of which not the same is left when it has ended.
func (d Decision) appendItems(items []headers.Item) []headers.Item {
	allowed := d.Allowed()
	for i := range d.Results {
		k := d.kind(i)
		if !d.blocks[d.Results[i].Limit.Name] && (!allowed || !k.held) {
			items = append(items, headers.Item{Result: d.Results[i], Unit: k.unit})
		}
	}
	return items
}

// RetryAfter returns how long the client should wait before it repeats the request: at least a
// second, or 0 if the answer has no Retry-After; see the package comment. It is the longest
// RetryAfter of the limits that refuse. A limit of calls in flight counts as one second, because
// most calls end long before the RetryAfter of the limit. If the store is unavailable, RetryAfter
// returns one second.
func (d Decision) RetryAfter() time.Duration {
	if d.Err != nil {
		if d.reason() == edge.Undecided {
			// It is not known when the store recovers. This is the shortest Retry-After.
			return time.Second
		}
		return 0
	}
	var wait time.Duration
	for i := range d.Results {
		if d.Results[i].Allowed {
			continue
		}
		wait = max(wait, time.Second)
		if d.kind(i).unit != headers.ConcurrentRequests {
			wait = max(wait, d.Results[i].RetryAfter)
		}
	}
	return wait
}

// Status returns the status that [Refuse] answers with, or 200 if the request is allowed; see the
// package comment.
func (d Decision) Status() int {
	if d.Err != nil {
		if chosen := d.chosen(); chosen != nil {
			if s := chosen.Status; s >= 400 && s <= 599 {
				return s
			}
			return http.StatusInternalServerError
		}
	}
	switch d.reason() {
	case 0:
		return http.StatusOK
	case edge.Exceeded, edge.Blocked:
		return http.StatusTooManyRequests
	case edge.Reduced, edge.Undecided, edge.Ended:
		return http.StatusServiceUnavailable
	case edge.Unattributed:
		return http.StatusBadRequest
	case edge.Never:
		return http.StatusUnprocessableEntity
	}
	return http.StatusInternalServerError
}

// reason returns why the request is not passed on, or the zero Reason.
func (d Decision) reason() edge.Reason {
	switch {
	case d.ended:
		return edge.Ended
	case errors.Is(d.Err, ErrUnattributed):
		return edge.Unattributed
	case d.Err != nil:
		return edge.ReasonOf(context.Background(), d.Err)
	case d.Allowed():
		return 0
	case d.reduced:
		return edge.Reduced
	case d.blocked():
		return edge.Blocked
	}
	return edge.Exceeded
}

// Refusal returns why the request is not passed on, for a function of [WithRefusal] that answers in
// another protocol. Its Reason is zero if the request is allowed.
func (d Decision) Refusal() edge.Refusal {
	r := edge.Refusal{}
	for i := range d.Results {
		if res := &d.Results[i]; !res.Allowed {
			r.Add(edge.RefusingLimit{
				Limit:    res.Limit,
				InFlight: d.kind(i).unit == headers.ConcurrentRequests,
				Blocked:  d.blocks[res.Limit.Name],
			}, res.RetryAfter)
		}
	}
	r.Reason = d.reason()
	return r
}

// chosen returns the error of the Choose if it has a status, else nil.
func (d Decision) chosen() (status *StatusError) {
	if errors.Is(d.Err, ErrUnattributed) {
		errors.As(d.Err, &status)
	}
	return status
}

// blocked reports whether one of the limits that refuse is a block.
func (d Decision) blocked() bool {
	for i := range d.Results {
		if res := &d.Results[i]; !res.Allowed && d.blocks[res.Limit.Name] {
			return true
		}
	}
	return false
}

// violated returns the names of the limits that refuse.
func (d Decision) violated(names []string) []string {
	for i := range d.Results {
		if !d.Results[i].Allowed {
			names = append(names, d.Results[i].Limit.Name)
		}
	}
	return names
}

type decisionKey struct{}

// FromContext returns the decision about a request from the context that its handler gets, or from
// a context derived from that. If several middlewares of this package have limited the request, the
// decision is that of the innermost. FromContext returns false if the request was not limited.
func FromContext(ctx context.Context) (Decision, bool) {
	if d, ok := ctx.Value(decisionKey{}).(*Decision); ok {
		return *d, true
	}
	return Decision{}, false
}
