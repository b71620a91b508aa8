package layer

import (
	"context"
	"fmt"
	"time"

	"github.com/truewindow/ratelimit"
)

// Deadline is a store whose calls end in time, if the store inside keeps to contexts as the contract wants it to. Those on servers have a Timeout of
// their own, which costs less; this one is for stores that have none, and for a shorter one where several limiters use one store. Create one with
// [NewDeadline]. It is safe for simultaneous use.
type Deadline struct {
	store ratelimit.Store
	after time.Duration
}

var _ ratelimit.Store = (*Deadline)(nil)

// NewDeadline returns a store that asks store and gives each call no more time than after; a context with an earlier deadline shortens it. after
// has no default. An error wraps [ErrInvalidOptions].
func NewDeadline(store ratelimit.Store, after time.Duration) (*Deadline, error) {
	if store == nil {
		return nil, fmt.Errorf("%w: no store", ErrInvalidOptions)
	}
	if after <= 0 {
		return nil, fmt.Errorf("%w: a deadline after %v", ErrInvalidOptions, after)
	}
	return &Deadline{store, after}, nil
}

// Take decides one demand. Result and error are those of the store inside.
func (s *Deadline) Take(ctx context.Context, d ratelimit.Demand) (ratelimit.Result, error) {
	if s.sooner(ctx) {
		return s.store.Take(ctx, d)
	}
	ctx, cancel := context.WithTimeout(ctx, s.after)
	defer cancel()
	return s.store.Take(ctx, d)
}

// TakeAll decides several demands as one. Results and error are those of the store inside.
func (s *Deadline) TakeAll(ctx context.Context, ds []ratelimit.Demand, out []ratelimit.Result) error {
	if s.sooner(ctx) {
		return s.store.TakeAll(ctx, ds, out)
	}
	ctx, cancel := context.WithTimeout(ctx, s.after)
	defer cancel()
	return s.store.TakeAll(ctx, ds, out)
}

// sooner tells that ctx ends in time by itself.
func (s *Deadline) sooner(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ok && time.Until(deadline) <= s.after
}
