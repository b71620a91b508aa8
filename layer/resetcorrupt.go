package layer

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/truewindow/ratelimit/driver"
)

// ResetCorrupt is a store that resets corrupt states: when the store inside fails with
// [driver.ErrCorruptState] it resets that state and calls the store again. Create one with
// [NewResetCorrupt]. It is safe for concurrent use.
//
// Without it demands on such a key fail, whatever the policy, until the state is reset or expires.
// With it the key has its whole limit again at once, so whoever can corrupt a state, but not delete
// it, can use the limit again and again. It also resets for an OpPeek. What a corrupt state held is
// lost in either case. What others admit between the failure and the reset is lost too. Within a
// process that cannot happen. If several processes find the same state corrupt at the same moment,
// each may admit as much as the limit.
type ResetCorrupt struct {
	store    driver.Store
	resets   atomic.Int64
	resetter chan struct{} // a lock, held while there is an element in it
}

var _ driver.Store = (*ResetCorrupt)(nil)

// NewResetCorrupt returns a store around store.
func NewResetCorrupt(store driver.Store) *ResetCorrupt {
	return &ResetCorrupt{store: store, resetter: make(chan struct{}, 1)}
}

// Resets returns how many states were corrupt and have been reset.
func (s *ResetCorrupt) Resets() int64 { return s.resets.Load() }

// Take decides one demand, on a state that it has reset if need be. If the reset fails, the error
// is that of the demand.
func (s *ResetCorrupt) Take(ctx context.Context, d driver.Demand) (driver.Result, error) {
	res, err := s.store.Take(ctx, d)
	if !errors.Is(err, driver.ErrCorruptState) || !s.enter(ctx) {
		return res, err
	}
	defer s.leave()
	res, err = s.store.Take(ctx, d) // others may have reset it, and have been admitted since
	if errors.Is(err, driver.ErrCorruptState) && s.reset(ctx, d) {
		res, err = s.store.Take(ctx, d)
	}
	return res, err
}

// TakeAll decides several demands as one, on states that it has reset if need be.
func (s *ResetCorrupt) TakeAll(
	ctx context.Context, ds []driver.Demand, out []driver.Result,
) error {
	err := s.store.TakeAll(ctx, ds, out)
	if !errors.Is(err, driver.ErrCorruptState) || !s.enter(ctx) {
		return err
	}
	defer s.leave()
	err = s.store.TakeAll(ctx, ds, out)
	if errors.Is(err, driver.ErrCorruptState) && s.resetCorrupt(ctx, ds) {
		err = s.store.TakeAll(ctx, ds, out)
	}
	return err
}

// enter waits until no other state is being reset, and reports false if ctx ends before.
func (s *ResetCorrupt) enter(ctx context.Context) bool {
	select {
	case s.resetter <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s *ResetCorrupt) leave() { <-s.resetter }

// resetCorrupt resets those of ds whose state is corrupt, and reports whether it was able to.
func (s *ResetCorrupt) resetCorrupt(ctx context.Context, ds []driver.Demand) bool {
	for _, d := range ds {
		_, err := s.store.Take(ctx, peekOf(d))
		if errors.Is(err, driver.ErrCorruptState) && !s.reset(ctx, d) {
			return false
		}
	}
	return true
}

func (s *ResetCorrupt) reset(ctx context.Context, d driver.Demand) bool {
	_, err := s.store.Take(ctx,
		driver.Demand{Key: d.Key, Algorithm: d.Algorithm, Op: driver.OpReset})
	if err == nil {
		s.resets.Add(1)
	}
	return err == nil
}
