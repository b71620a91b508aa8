package layer

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/truewindow/ratelimit"
)

// Afresh is a store that begins anew where the state of a key is corrupt: where the store inside answers with [ratelimit.ErrCorruptState] it resets
// that state, and asks once more. Create one with [NewAfresh]. It is safe for simultaneous use.
//
// Without it such a key is refused, whatever the policy, until somebody resets it or it expires. With it the key has its whole limit at once, as if nobody
// had used it, so whoever can spoil a state, but not delete it, can have the limit again and again. It also resets for a Look. What a state that is corrupt
// held is lost in either case, and what others have admitted between the answer and the reset is lost here: within a process that cannot happen; of
// several processes that find the same state corrupt in the same moment each may admit as much as the limit.
type Afresh struct {
	store    ratelimit.Store
	resets   atomic.Int64
	resetter chan struct{} // has room for one
}

var _ ratelimit.Store = (*Afresh)(nil)

// NewAfresh returns a store around store.
func NewAfresh(store ratelimit.Store) *Afresh {
	return &Afresh{store: store, resetter: make(chan struct{}, 1)}
}

// Resets returns how many states were corrupt and have been reset.
func (s *Afresh) Resets() int64 { return s.resets.Load() }

// Take decides one demand, if need be on a state that it has reset. The error of a state that it could not reset is that of the demand.
func (s *Afresh) Take(ctx context.Context, d ratelimit.Demand) (ratelimit.Result, error) {
	res, err := s.store.Take(ctx, d)
	if !errors.Is(err, ratelimit.ErrCorruptState) || !s.enter(ctx) {
		return res, err
	}
	defer s.leave()
	res, err = s.store.Take(ctx, d) // others may have reset it, and have been admitted since
	if errors.Is(err, ratelimit.ErrCorruptState) && s.reset(ctx, d) {
		res, err = s.store.Take(ctx, d)
	}
	return res, err
}

// TakeAll decides several demands as one, if need be on states that it has reset.
func (s *Afresh) TakeAll(ctx context.Context, ds []ratelimit.Demand, out []ratelimit.Result) error {
	err := s.store.TakeAll(ctx, ds, out)
	if !errors.Is(err, ratelimit.ErrCorruptState) || !s.enter(ctx) {
		return err
	}
	defer s.leave()
	err = s.store.TakeAll(ctx, ds, out)
	if errors.Is(err, ratelimit.ErrCorruptState) && s.resetCorrupt(ctx, ds) {
		err = s.store.TakeAll(ctx, ds, out)
	}
	return err
}

// enter waits until no other state is being reset, and reports false if ctx ends before.
func (s *Afresh) enter(ctx context.Context) bool {
	select {
	case s.resetter <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s *Afresh) leave() { <-s.resetter }

// resetCorrupt resets those of ds whose state is corrupt, and reports whether it was able to.
func (s *Afresh) resetCorrupt(ctx context.Context, ds []ratelimit.Demand) bool {
	for _, d := range ds {
		_, err := s.store.Take(ctx, ratelimit.Demand{Key: d.Key, Algorithm: d.Algorithm, Op: ratelimit.Look, N: 1})
		if errors.Is(err, ratelimit.ErrCorruptState) && !s.reset(ctx, d) {
			return false
		}
	}
	return true
}

func (s *Afresh) reset(ctx context.Context, d ratelimit.Demand) bool {
	_, err := s.store.Take(ctx, ratelimit.Demand{Key: d.Key, Algorithm: d.Algorithm, Op: ratelimit.Reset})
	if err == nil {
		s.resets.Add(1)
	}
	return err == nil
}
