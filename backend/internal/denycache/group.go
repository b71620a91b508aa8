package denycache

import (
	"time"

	"github.com/truewindow/ratelimit/backend/internal/batch"
	"github.com/truewindow/ratelimit/driver"
)

// changed reports whether the states of g may differ from what they were before it.
func changed(g *batch.Group) bool {
	if g.Err != nil || g.Wrote {
		return true
	}
	if len(g.Demands) > 1 {
		for i := range g.Results {
			if !g.Results[i].Allowed {
				return false
			}
		}
		return true
	}
	switch g.Demands[0].Op {
	case driver.OpPeek:
		return false
	case driver.OpTake, driver.OpHold:
		for i := range g.Results {
			if g.Results[i].Allowed {
				return true
			}
		}
		return false
	}
	return true
}

// retryAfter returns the earliest RetryAfter of the results that are refusals, and whether one is.
func retryAfter(g *batch.Group) (earliest time.Duration, refused bool) {
	for i := range g.Results {
		res := &g.Results[i]
		if !res.Allowed && (!refused || res.RetryAfter < earliest) {
			earliest, refused = res.RetryAfter, true
		}
	}
	return earliest, refused
}
