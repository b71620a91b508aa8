package grpclimit

import (
	"context"

	"github.com/truewindow/ratelimit"
)

// A Decision is what was decided about a call. Do not change what it refers to.
type Decision struct {
	// Claims are those of the Choose.
	Claims []ratelimit.Claim
	// Results has a result for each limit of each claim, those of the first claim first. Of one
	// call in flight that was waited for it has only that of the limit that binds.
	Results []ratelimit.Result
}

// FromContext returns the decision about the call whose handler has the context ctx, and whether
// the call was limited.
func FromContext(ctx context.Context) (Decision, bool) {
	d, ok := ctx.Value(decisionKey{}).(*Decision)
	if !ok {
		return Decision{}, false
	}
	return *d, true
}

func (d *Decision) allowed() bool {
	return d.Results[ratelimit.Binding(d.Results)].Allowed
}

// limit returns the limit of result i of a refusal, and its limiter.
func (d *Decision) limit(i int) (*ratelimit.Limiter, ratelimit.Limit) {
	for _, c := range d.Claims {
		limits := c.Limiter.Limits()
		if i < len(limits) {
			return c.Limiter, limits[i]
		}
		i -= len(limits)
	}
	panic("grpclimit: more results than limits")
}
