package denycache

import (
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// A Group is what the cache needs of demands that the server decides together.
type Group struct {
	Keys    []string        // stored keys of Demands
	Demands []driver.Demand // with keys from CopyKey
	Results []driver.Result // of the demands, or of equal Takes for which the one demand stands
	Err     error
	Wrote   bool // the server wrote a state although it recorded nothing
}

// changed reports whether the states of g may differ from what they were before it.
func (g *Group) changed() bool {
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
	case driver.OpTake:
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
func (g *Group) retryAfter() (earliest time.Duration, refused bool) {
	for i := range g.Results {
		res := &g.Results[i]
		if !res.Allowed && (!refused || res.RetryAfter < earliest) {
			earliest, refused = res.RetryAfter, true
		}
	}
	return earliest, refused
}
