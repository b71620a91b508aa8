package layer

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit/driver"
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
	peeks       *pacer
}

// record records how a call for d ended, and reports whether the store is unavailable, so that d
// may be decided locally.
func (a *availability) record(
	ctx context.Context, d driver.Demand, err error, results ...driver.Result,
) (unavailable bool) {
	switch judge(ctx, err, results...) {
	case answered:
		a.set(false)
	case failed:
		a.set(true)
		return true
	case abandoned:
		a.peeks.run(func() { a.peek(d) })
	}
	return false
}

func (a *availability) set(unavailable bool) {
	if a.unavailable.Load() == unavailable { // so that answers only read
		return
	}
	if a.unavailable.CompareAndSwap(!unavailable, unavailable) && a.onChange != nil {
		a.onChange(unavailable)
	}
}

// peek peeks at d's state and records the outcome. It has no caller, so it ends at the store's own
// timeout.
func (a *availability) peek(d driver.Demand) {
	if !a.background.enter() {
		return
	}
	defer a.background.leave()
	d = peekOf(d)
	res, err := a.store.Take(a.background.ctx, d)
	a.record(a.background.ctx, d, err, res)
}
