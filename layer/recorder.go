package layer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

const (
	// recordEvery is the pause between two rounds in which debts are recorded in the background.
	recordEvery = 200 * time.Millisecond
	// forgetEvery is that pause while there is nothing but holds to forget.
	forgetEvery = time.Minute
	// recordTimeout bounds an attempt, for stores that have no timeout of their own.
	recordTimeout = time.Second
	// recordWorkers is the most attempts at a time in the background.
	recordWorkers = 16
)

// recorder records the debts of a ledger in the store: the debt on a state before the next demand
// on it, all others in the background. There it also tells the store about pending holds.
type recorder struct {
	store        driver.Store
	ledger       *ledger
	availability *availability
	background   *background
	running      atomic.Bool   // the goroutine of run
	more         chan struct{} // wakes it
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

// force records d in the store.
func (r *recorder) force(d driver.Demand) (outcome, error) {
	if d.N == 0 {
		return settled, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), recordTimeout)
	defer cancel()
	if err := r.peekFirst(ctx, d); err != nil {
		return notSent, err
	}
	res, result, err := r.send(ctx, d)
	switch result {
	case settled:
		switch {
		case err != nil:
		case isBlock(d.Algorithm): // another process may have set a later end
			r.ledger.trackBlock(d, res, true, -1)
		default:
			r.recorded.Add(d.N)
		}
		return settled, nil
	case unknown:
		r.unconfirmed.Add(d.N)
	}
	return result, err
}

// peekFirst peeks at d's state if the store was unavailable: a server that only hung would in the
// end record every force that was sent to it.
func (r *recorder) peekFirst(ctx context.Context, d driver.Demand) error {
	if !r.availability.unavailable.Load() {
		return nil
	}
	res, err := r.store.Take(ctx, peekOf(d))
	if err == nil {
		r.availability.record(ctx, d, nil, res)
	}
	return err
}

// send sends d. The outcome is settled, with an error, if the store will never decide it.
func (r *recorder) send(
	ctx context.Context, d driver.Demand,
) (res driver.Result, result outcome, err error) {
	res, err = r.store.Take(ctx, d)
	if err == nil {
		r.availability.record(ctx, d, nil, res)
		return res, settled, nil
	}
	// Not ctx: the end of recordTimeout is a failure of the store.
	r.availability.record(context.Background(), d, err)
	switch {
	case errors.Is(err, driver.ErrOutcomeUnknown):
		return res, unknown, err
	case !errors.Is(err, driver.ErrUnavailable), errors.Is(err, driver.ErrCorruptState):
		return res, settled, err
	}
	return res, notSent, err
}

// A round of attempts for pending holds: one for each that was due.
type round struct {
	next   atomic.Int64 // the next hold
	failed atomic.Bool  // no more attempts

	mu   sync.Mutex
	full map[*heldState]int64 // units that the store has refused
}

// isFull reports whether the store has refused n units of a state, or fewer.
func (r *round) isFull(s *heldState, n int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	least, ok := r.full[s]
	return ok && n >= least
}

func (r *round) refused(s *heldState, n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.full[s] = n
}

// tellAll makes an attempt for each pending hold that is due. When one finds the store unavailable,
// it leaves all others.
func (r *recorder) tellAll() {
	holds := r.ledger.takeDue()
	if len(holds) == 0 {
		return
	}
	now := &round{full: make(map[*heldState]int64)}
	ctx, cancel := context.WithTimeout(context.Background(), recordTimeout)
	now.failed.Store(driver.IsOutage(r.peekFirst(ctx, holds[0].state.peek)))
	cancel()
	work := func() {
		for i := now.next.Add(1) - 1; i < int64(len(holds)); i = now.next.Add(1) - 1 {
			if now.failed.Load() || r.background.ctx.Err() != nil {
				r.ledger.postpone(holds[i])
			} else if driver.IsOutage(r.tell(holds[i], now)) {
				now.failed.Store(true)
			}
		}
	}
	var working sync.WaitGroup
	for range min(recordWorkers-1, len(holds)/8) {
		working.Go(work)
	}
	work()
	working.Wait()
}

// tell tells the store what was decided about h.
func (r *recorder) tell(h *pendingHold, now *round) (err error) {
	d, needsRoom, ok := r.ledger.beginHold(h)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), recordTimeout)
	defer cancel()
	var res driver.Result
	result, full := notSent, needsRoom && now.isFull(h.state, d.N)
	if !full {
		if res, result, err = r.send(ctx, d); err == nil && !res.Allowed {
			now.refused(h.state, d.N)
			full = true
		}
	}
	if err == nil && d.Op == driver.OpSettle {
		r.recorded.Add(res.Units)
	}
	stored, again := r.ledger.finishHold(h, d, res, result)
	if stored && full {
		d.N = 0 // renews what it holds of the units
		_, _, err = r.send(ctx, d)
	}
	if again && err == nil {
		return r.tell(h, now)
	}
	return err
}

// wake starts run or ends its longer pause, if there is anything to do.
func (r *recorder) wake() {
	if !r.ledger.waiting() {
		return
	}
	if r.running.CompareAndSwap(false, true) {
		r.background.start(r.run)
		return
	}
	select {
	case r.more <- struct{}{}:
	default:
	}
}

// run records debts and tells the store about holds until there is nothing more.
func (r *recorder) run() {
	for r.ledger.waiting() {
		pause, more := recordEvery, (chan struct{})(nil)
		if r.ledger.idle() {
			pause, more = forgetEvery, r.more
		}
		select {
		case <-r.background.ctx.Done():
			return
		case <-more:
			continue
		case <-time.After(pause):
		}
		for r.recordSome() && r.background.ctx.Err() == nil {
		}
		r.tellAll()
		r.ledger.expire()
	}
	r.running.Store(false)
	r.wake() // there may be something since it last looked
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
