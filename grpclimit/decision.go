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
	// claim that was waited for it may have only that of the limit that binds.
	Results []ratelimit.Result

	each bool // Results has all of them
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

// limit returns the limit of result i, and its limiter.
func (d *Decision) limit(i int) (*ratelimit.Limiter, ratelimit.Limit) {
	if !d.each {
		l := d.Claims[0].Limiter
		return l, binding(l.Limits(), d.Results[0])
	}
	for _, c := range d.Claims {
		limits := c.Limiter.Limits()
		if i < len(limits) {
			return c.Limiter, limits[i]
		}
		i -= len(limits)
	}
	panic("grpclimit: more results than limits")
}

// binding returns the limit that has given res, as far as its Max tells.
func binding(limits []ratelimit.Limit, res ratelimit.Result) ratelimit.Limit {
	for _, limit := range limits {
		if limit.Max == res.Limit {
			return limit
		}
	}
	return limits[0]
}
