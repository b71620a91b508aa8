package grpclimit

import (
	"context"

	"github.com/truewindow/ratelimit"
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
// or from a context derived from that. For a stream it is the decision about the opening.
// FromContext returns false if the call was not limited.
func FromContext(ctx context.Context) (Decision, bool) {
	d, ok := ctx.Value(decisionKey{}).(*Decision)
	if !ok {
		return Decision{}, false
	}
	return *d, true
}
