package edge

import (
	"context"
	"errors"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/driver"
)

// A Reason says why a call is not passed on, whatever the protocol.
type Reason uint8

// The reasons. The zero Reason is that of no refusal.
const (
	// Exceeded means that a limit refuses the call, or that too many calls wait for its key.
	Exceeded Reason = iota + 1
	// Blocked means that a limit refuses the call, and that one that does is a block.
	Blocked
	// Reduced means that every limit that refuses is one that a degraded store has reduced
	// ([ratelimit.SourceLocal]). The caller may be within its real limits.
	Reduced
	// Never means that the call has more units than a limit ever admits.
	Never
	// Undecided means that the store is unavailable, and that no policy admits the call.
	Undecided
	// Unattributed means that it is not known whose limits apply: a claim has no key.
	Unattributed
	// Ended means that the call's context had ended before it was decided.
	Ended
	// Misconfigured means that the claims can never be decided, such as those on several stores.
	Misconfigured
)

var reasons = [...]string{"", "exceeded", "blocked", "reduced", "never", "undecided",
	"unattributed", "ended", "misconfigured"}

// String returns the reason in lower case, such as "exceeded", and "" for the zero Reason.
func (r Reason) String() string {
	if int(r) < len(reasons) {
		return reasons[r]
	}
	return "unknown"
}

// A Refusal is why a call is not passed on, for the answer of any protocol. It has no key and no
// text of an error.
type Refusal struct {
	Reason Reason
	// Limits are those that refuse, in the order of the claims. There are none if Reason is
	// Undecided or one of those after it.
	Limits []RefusingLimit
	// RetryAfter is the time after which the call may be admitted. A limit of calls in flight
	// counts as a second at most, since most calls end before its window does. It is 0 if waiting
	// does not help, or if the time is not known.
	RetryAfter time.Duration
}

// A RefusingLimit is a limit that refuses a call.
type RefusingLimit struct {
	ratelimit.Limit
	InFlight bool // it limits calls in flight
	Blocked  bool // it is a block, and its Max means nothing
}

// maxInFlightWait is the longest RetryAfter of a limit of calls in flight.
const maxInFlightWait = time.Second

// Refusal returns why Decide has not admitted claims. err is what it has returned, and blocks has
// the names of the limits that are blocks.
func (c *Call) Refusal(
	ctx context.Context, claims []ratelimit.Claim, err error, blocks map[string]bool,
) Refusal {
	if err != nil && (ctx.Err() != nil || c.Results == nil) {
		return undecided(ctx, claims, err)
	}
	r := Refusal{Reason: Exceeded}
	results := c.Results
	for i := range claims {
		for _, a := range claims[i].Limiter.Algorithms() {
			res := &results[0]
			results = results[1:]
			if res.Allowed {
				continue
			}
			r.Add(RefusingLimit{a.Limit(), InFlight(a), blocks[a.Limit().Name]}, res.RetryAfter)
		}
	}
	if c.Reduced(claims) {
		r.Reason = Reduced
	}
	return r
}

// Add adds a limit that refuses the call until wait has passed, which is 0 if that is not known.
func (r *Refusal) Add(limit RefusingLimit, wait time.Duration) {
	if limit.Blocked {
		r.Reason = Blocked
	}
	if limit.InFlight {
		wait = min(wait, maxInFlightWait)
	}
	r.Limits = append(r.Limits, limit)
	r.RetryAfter = max(r.RetryAfter, wait)
}

// undecided returns why err has kept claims from being decided.
func undecided(ctx context.Context, claims []ratelimit.Claim, err error) Refusal {
	r := Refusal{Reason: ReasonOf(ctx, err)}
	if r.Reason != Exceeded && r.Reason != Never {
		return r
	}
	for i := range claims {
		needed := claims[i].N
		if claims[i].Least > 0 && needed <= driver.MaxUnits {
			needed = claims[i].Least
		}
		for _, a := range claims[i].Limiter.Algorithms() {
			if limit := a.Limit(); r.Reason == Exceeded || needed > limit.Max {
				r.Add(RefusingLimit{Limit: limit, InFlight: InFlight(a)}, 0)
			}
		}
	}
	return r
}

// ReasonOf returns the reason of an error of [Call.Decide], or the zero Reason for nil.
func ReasonOf(ctx context.Context, err error) Reason {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, ErrNoKey):
		return Unattributed
	case ctx.Err() != nil:
		return Ended
	case errors.Is(err, ratelimit.ErrUnavailable):
		return Undecided
	case errors.Is(err, ratelimit.ErrExceedsLimit):
		return Never
	case errors.Is(err, ratelimit.ErrQueueFull):
		return Exceeded
	}
	return Misconfigured
}

// Reduced reports whether each limit that refuses is lower than usual, because a degraded store has
// decided by this process's share.
func (c *Call) Reduced(claims []ratelimit.Claim) bool {
	results := c.Results
	for i := range claims {
		for _, limit := range claims[i].Limiter.Limits() {
			res := &results[0]
			results = results[1:]
			if !res.Allowed &&
				(res.Source != ratelimit.SourceLocal || res.Limit.Max >= limit.Max) {
				return false
			}
		}
	}
	return true
}
