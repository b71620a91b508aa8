package ratelimit

import (
	"context"
	"fmt"

	"github.com/truewindow/ratelimit/driver"
)

// giveBack is ask for an OpGiveBack of one limiter.
func (c *call) giveBack(ctx context.Context) error {
	p := &c.parts[0]
	if len(p.admission) != len(p.results) {
		return fmt.Errorf("%w demand: %d results of an admission, want one for each of %d limits",
			ErrInvalid, len(p.admission), len(p.results))
	}
	recorded := false
	for _, res := range p.admission {
		if !res.Allowed {
			return fmt.Errorf("%w demand: the call was refused, so it has no units to give back",
				ErrInvalid)
		}
		recorded = recorded || res.At != 0
	}
	if recorded && p.n != 0 {
		return c.ask(ctx)
	}
	// Nothing was recorded, or nothing is given back. Key and n must be valid all the same.
	d := c.demands[0]
	if p.n == 0 {
		d.N = 1
	}
	if err := driver.CheckTake(context.WithoutCancel(ctx), d); err != nil {
		return err
	}
	for i, limit := range p.limiter.limits {
		p.results[i] = Result{Allowed: true, Limit: limit}
	}
	return nil
}
