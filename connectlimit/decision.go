package connectlimit

import (
	"context"

	"connectrpc.com/connect/v2"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/edge"
)

// A Decision is what the limits of a call have decided. Do not change its slices.
type Decision struct {
	// Claims are those that the Choose returned.
	Claims []ratelimit.Claim
	// Results has a result for each limit of each claim: first those of the first claim, in the
	// order of its limiter's Limits.
	Results []ratelimit.Result
}

// FromContext returns the decision about a call of a server from the context that its handler gets,
// or from a context derived from that. FromContext returns false if the call was not limited.
func FromContext(ctx context.Context) (Decision, bool) {
	d, ok := ctx.Value(decisionKey{}).(*Decision)
	if !ok || d.Results == nil {
		return Decision{}, false
	}
	return *d, true
}

type decisionKey struct{}

// An admission is a call that was admitted, and the context that its handler gets.
type admission struct {
	context.Context
	decision Decision
	call     edge.Call
}

// Value adds the decision to the values of the call's context.
func (a *admission) Value(key any) any {
	if key == (decisionKey{}) {
		return &a.decision
	}
	return a.Context.Value(key)
}

// settle settles the units of a call that has ended with code.
func (a *admission) settle(counts func(connect.Code) bool, code connect.Code) {
	if a == nil || !a.call.Settles() {
		return
	}
	keep := true
	defer func() { a.call.Settle(a.Context, keep) }() // also if counts panics
	keep = counts == nil || counts(code)
}
