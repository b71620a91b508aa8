package layer

import (
	"context"
	"fmt"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// Timeout is a store whose calls end in time, provided that the store inside observes contexts as
// the contract requires. The stores on servers have a Timeout of their own, which costs less; this
// one is for stores that have none, and for a shorter one where several limiters use one store.
// Create one with [NewTimeout]. It is safe for concurrent use.
type Timeout struct {
	store driver.Store
	after time.Duration
}

var _ driver.Store = (*Timeout)(nil)

// NewTimeout returns a store that gives each call of store no more time than after, which has no
// default; a context with an earlier deadline shortens it. An error wraps
// [driver.ErrInvalid].
func NewTimeout(store driver.Store, after time.Duration) (*Timeout, error) {
	if store == nil {
		return nil, fmt.Errorf("%w options: no store", driver.ErrInvalid)
	}
	if after <= 0 {
		return nil, fmt.Errorf("%w options: timeout %v is not positive", driver.ErrInvalid, after)
	}
	return &Timeout{store, after}, nil
}

// Take decides one demand. Result and error are those of the store inside.
func (s *Timeout) Take(ctx context.Context, d driver.Demand) (driver.Result, error) {
	ctx, cancel := s.within(ctx)
	defer cancel()
	return s.store.Take(ctx, d)
}

// TakeAll decides several demands as one. Results and error are those of the store inside.
func (s *Timeout) TakeAll(
	ctx context.Context, ds []driver.Demand, out []driver.Result,
) error {
	ctx, cancel := s.within(ctx)
	defer cancel()
	return s.store.TakeAll(ctx, ds, out)
}

// within returns ctx, with a deadline unless it has an earlier one.
func (s *Timeout) within(ctx context.Context) (context.Context, context.CancelFunc) {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= s.after {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, s.after)
}
