package layer

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

const (
	// recordEvery is the pause between two rounds in which debts are recorded in the background.
	recordEvery = 200 * time.Millisecond
	// recordTimeout bounds an attempt, for stores that have no timeout of their own.
	recordTimeout = time.Second
	// recordWorkers is the most attempts at a time in the background.
	recordWorkers = 16
)

// recorder records the debts of a ledger in the store: the debt on a state before the next demand
// on it, all others in the background.
type recorder struct {
	store        driver.Store
	ledger       *ledger
	availability *availability
	background   *background
	running      atomic.Bool // the goroutine of run
	recorded     atomic.Int64
	unconfirmed  atomic.Int64
}

// recordBefore records the debt on d's state, before the store decides d. The attempts do not end
// with ctx, since other callers may wait for them. There is more than one if something is admitted
// locally during the first.
func (r *recorder) recordBefore(ctx context.Context, d driver.Demand) error {
	for {
		a, isNew := r.ledger.begin(d)
		if a == nil {
			return nil
		}
		if isNew {
			r.start(a)
		}
		select {
		case <-a.done:
			if a.err != nil {
				return a.err
			}
		case <-ctx.Done():
			return fmt.Errorf("%w: units that were admitted locally are not recorded yet: %w",
				driver.ErrUnavailable, ctx.Err())
		}
	}
}

// start runs an attempt in the background.
func (r *recorder) start(a *attempt) {
	started := r.background.start(func() {
		result, err := r.force(a.force)
		r.ledger.finish(a, result, err)
	})
	if !started { // the layer is closed: its debts no longer matter
		r.ledger.finish(a, settled, nil)
	}
}

// force records d in the store. If the store was unavailable, a peek has to succeed first: a server
// that only hung would in the end record every force that was sent to it.
func (r *recorder) force(d driver.Demand) (outcome, error) {
	if d.N == 0 {
		return settled, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), recordTimeout)
	defer cancel()
	if r.availability.unavailable.Load() {
		res, err := r.store.Take(ctx, peekOf(d))
		if err != nil {
			return notSent, err
		}
		r.availability.record(ctx, d, nil, res)
	}
	res, err := r.store.Take(ctx, d)
	if err == nil {
		r.availability.record(ctx, d, nil, res)
		r.recorded.Add(d.N)
		if isBlock(d.Algorithm) { // another process may have set a later end
			r.ledger.trackBlock(d, res, true, -1)
		}
		return settled, nil
	}
	// Not ctx: the end of recordTimeout is a failure of the store.
	r.availability.record(context.Background(), d, err)
	switch {
	case errors.Is(err, driver.ErrOutcomeUnknown):
		r.unconfirmed.Add(d.N)
		return unknown, err
	case !errors.Is(err, driver.ErrUnavailable), errors.Is(err, driver.ErrCorruptState):
		return settled, nil // the store will never record it
	}
	return notSent, err
}

// wake starts run, if there are debts and it is not running.
func (r *recorder) wake() {
	if r.ledger.pending.Load() > 0 && r.running.CompareAndSwap(false, true) {
		r.background.start(r.run)
	}
}

// run records debts until there are none.
func (r *recorder) run() {
	ticker := time.NewTicker(recordEvery)
	defer ticker.Stop()
	for r.ledger.pending.Load() > 0 {
		select {
		case <-r.background.ctx.Done():
			return
		case <-ticker.C:
		}
		for r.recordSome() && r.background.ctx.Err() == nil {
		}
		r.ledger.expire()
	}
	r.running.Store(false)
	r.wake() // there may be a debt since pending was read
}

// recordSome makes some attempts, and reports whether there may be more debts that can be recorded
// now. While the store is unavailable, one attempt at a time is enough to find out.
func (r *recorder) recordSome() bool {
	n := recordWorkers
	if r.availability.unavailable.Load() {
		n = 1
	}
	attempts := r.ledger.beginSome(n)
	for _, a := range attempts {
		r.start(a)
	}
	more := len(attempts) > 0
	for _, a := range attempts {
		<-a.done
		more = more && a.err == nil
	}
	return more
}
