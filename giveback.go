package ratelimit

import (
	"context"
	"fmt"

	"github.com/truewindow/ratelimit/driver"
)

// giveBack is decide for an OpGiveBack.
func (l *Limiter) giveBack(ctx context.Context, c call, s *scratch) error {
	if len(c.admission) != len(l.limits) {
		return fmt.Errorf("%w demand: got %d results of an admission, want one for each of %d limits",
			ErrInvalid, len(c.admission), len(l.limits))
	}
	recorded := false
	for _, res := range c.admission {
		if !res.Allowed {
			return fmt.Errorf("%w demand: the call was refused, so it has no units to give back",
				ErrInvalid)
		}
		recorded = recorded || res.At != 0
	}
	if recorded && c.n != 0 {
		defer l.wake(c.key)
		return l.ask(ctx, c, s)
	}
	// Nothing was recorded, or nothing is given back. Key and n must be valid all the same.
	d := driver.Demand{Key: c.key, Algorithm: l.algorithms[0], Op: c.op, N: c.n}
	if c.n == 0 {
		d.N = 1
	}
	if err := driver.CheckTake(context.WithoutCancel(ctx), d); err != nil {
		return err
	}
	for i, limit := range l.limits {
		s.results[i] = Result{Allowed: true, Limit: limit}
	}
	return nil
}
