package layer

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/internal/deadline"
	"github.com/truewindow/ratelimit/layer/internal/pace"
)

// peekPause is the least time between two peeks of an availability.
const peekPause = 500 * time.Millisecond

// availability knows whether a store is available: by the outcomes of calls, and where their
// callers allowed too little time to tell, by a peek of its own.
type availability struct {
	store       ratelimit.Store
	unavailable atomic.Bool
	onChange    func(unavailable bool) // may be nil
	background  *background
	peeks       *pace.Pacer
}

// failed notes that the store has answered d with err, and reports whether the store is
// unavailable, so that d may be decided locally. If the caller's own time is over, the error does
// not tell, and a peek finds out.
func (a *availability) failed(ctx context.Context, d ratelimit.Demand, err error) bool {
	switch {
	case !errors.Is(err, ratelimit.ErrUnavailable),
		errors.Is(err, ratelimit.ErrCorruptState),
		errors.Is(err, ratelimit.ErrCapacity),
		errors.Is(err, ratelimit.ErrClosed):
		return false
	case deadline.Passed(ctx):
		a.peeks.Go(func() { a.peek(d) })
		return false
	}
	if !a.unavailable.Swap(true) && a.onChange != nil {
		a.onChange(true)
	}
	return true
}

// answered notes that the store has decided, unless res is from a cache.
func (a *availability) answered(res ratelimit.Result) {
	if res.Source != ratelimit.SourceStore || !a.unavailable.Load() {
		return
	}
	if a.unavailable.CompareAndSwap(true, false) && a.onChange != nil {
		a.onChange(false)
	}
}

// peek asks the store about d's state and notes the outcome. It has no caller, so it ends at the
// store's own timeout.
func (a *availability) peek(d ratelimit.Demand) {
	if !a.background.enter() {
		return
	}
	defer a.background.leave()
	d = peekOf(d)
	if res, err := a.store.Take(a.background.ctx, d); err == nil {
		a.answered(res)
	} else {
		a.failed(a.background.ctx, d, err)
	}
}

// peekOf returns a demand that asks about d's state and changes nothing.
func peekOf(d ratelimit.Demand) ratelimit.Demand {
	return ratelimit.Demand{Key: d.Key, Algorithm: d.Algorithm, Op: ratelimit.OpPeek, N: 1}
}
