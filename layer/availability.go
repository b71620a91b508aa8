package layer

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/deadline"
	"github.com/truewindow/ratelimit/layer/internal/pace"
)

// peekPause is the least time between two peeks of an availability.
const peekPause = 500 * time.Millisecond

// availability records whether a store is available: by the outcomes of calls or, if their callers
// allowed too little time, by the outcome of a peek of its own.
type availability struct {
	store       driver.Store
	unavailable atomic.Bool
	onChange    func(unavailable bool) // may be nil
	background  *background
	peeks       *pace.Pacer
}

// failed records that the store returned err for d, and reports whether the store is unavailable,
// so that d may be decided locally. If the caller's own time is over, the error proves nothing, and
// a peek finds out.
func (a *availability) failed(ctx context.Context, d driver.Demand, err error) bool {
	switch {
	case !driver.IsOutage(err), errors.Is(err, driver.ErrClosed):
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

// answered records that the store has decided, unless all results are from a cache.
func (a *availability) answered(results ...driver.Result) {
	if !a.unavailable.Load() || !slices.ContainsFunc(results, ofStore) {
		return
	}
	if a.unavailable.CompareAndSwap(true, false) && a.onChange != nil {
		a.onChange(false)
	}
}

func ofStore(res driver.Result) bool { return res.Source == driver.SourceStore }

// peek peeks at d's state and records the outcome. It has no caller, so it ends at the store's own
// timeout.
func (a *availability) peek(d driver.Demand) {
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

// peekOf returns a peek at d's state.
func peekOf(d driver.Demand) driver.Demand {
	return driver.Demand{Key: d.Key, Algorithm: d.Algorithm, Op: driver.OpPeek, N: 1}
}
