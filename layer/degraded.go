package layer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/driver"
)

// DegradedOptions are the options of [NewDegraded].
type DegradedOptions struct {
	// Instances is the number of processes that use the store inside. While the store is
	// unavailable, the share of each is every limit divided by Instances, rounded down to whole
	// units. A larger number is safer and refuses more. There is no default.
	Instances int

	// MaxKeys is the largest number of states that are tracked locally, one for each limit of each
	// key. 0 is [memorystore.DefaultMaxKeys]. A demand on a key for which there is no room stays
	// undecided while the store is unavailable.
	//
	// Keys are held as copies, and those of more than 128 bytes as hashes. Keys with units or holds
	// that the store does not know yet are held whole too, in MaxKeys × 128 bytes for all of them,
	// and such states and holds are MaxKeys at most. When that is used up, demands that need more
	// stay undecided while the store is unavailable.
	MaxKeys int

	// OnChange, if not nil, is called with true when the store becomes unavailable, and with false
	// when it decides again. It should return soon: the demand that caused the call waits.
	OnChange func(unavailable bool)
}

// Degraded is a store that decides from the memory of this process while the store inside is
// unavailable. Create one with [NewDegraded]. It is safe for concurrent use.
//
// The same algorithm makes the local decisions, exactly, within this process's share of each limit.
// They have [driver.SourceLocal], and their Limit and Remaining are those of the share. Units
// that the store admitted for this process earlier count too. When the store decides again, units
// that were admitted locally and still count are recorded in it by OpForce, before any other demand
// on the key. They get the store's present time, which is later, so this can only refuse more. If
// an OpForce gets no answer, it is sent again, twice at most.
//
// Holds are known by their IDs, whether the store or this process has placed them, and can be
// renewed, enlarged and settled locally. The store learns it within a second when it is back: each
// settlement by its ID, once, and each local hold as soon as it fits. A local hold that the store
// never had is recorded by OpForce when it is settled.
//
// So in any window around an outage at most Max + Instances × (Max/Instances) units are admitted,
// besides what is forced or used beyond a hold. Each time that the store loses its data it may
// admit Max more; and if the outage outlasts the time-out of a hold, others may get its units until
// the hold is renewed.
//
// A block ([github.com/truewindow/ratelimit/algorithm.Block]) has no share and does not add up. It
// lasts as long as the store has last said in an answer to this process, to whatever call, or until
// a later end that was set here while the store was unavailable; the store then gets that end. A
// process does not know of a block that another has set or lifted since it last asked for it, or
// that was set on the store inside. As long as there is no room for some block, takes and peeks of
// blocks stay undecided for keys that are not known to be blocked.
//
// A call on a key with units that are not recorded yet may call the store three times: for a peek
// that finds out whether it is available, to record those units, and for the demand. So it may take
// up to three times the store's timeout. A TakeAll may take two timeouts for each such key, and one
// more. A [Timeout] around the layer bounds the whole.
//
// The store inside is unavailable when it fails with an outage ([driver.IsOutage]), except for
// [driver.ErrClosed] and the error of a call whose context has ended. Callers choose their
// deadlines, so a call is never decided locally because its own time is over. After such a call the
// layer peeks at the same key in the background, at most one peek at a time and two a second. Only
// the store's own timeout ends the peek, and its outcome counts. If callers allow less time than
// the store's timeout, put a breaker around the store inside: while it is open, it leaves time for
// a local decision.
//
// A take without an answer may have been recorded; if it is then admitted locally, it counts twice.
// These remain undecided, with the error of the store inside: a demand for more units than
// the share and one for a key for which there is no room, which callers could provoke and whose
// error is [driver.ErrCapacity] too; a reset; and what settles or renews a hold of another process.
//
// When the process ends, it loses what it has decided locally and the store does not know yet. If a
// call must not be decided locally, make its limiter on the store inside.
type Degraded struct {
	store        driver.Store
	local        *memorystore.Store
	ledger       *ledger
	recorder     *recorder
	availability *availability
	background   *background

	decided   atomic.Int64 // locally
	undecided atomic.Int64 // neither by the store inside nor locally
}

var _ driver.Store = (*Degraded)(nil)

// DegradedStats are the statistics of a [Degraded] store. Unavailable, Pending and Keys are
// current; the others are counts since the store was made.
type DegradedStats struct {
	Unavailable bool  // whether the store inside left the last demand undecided
	Local       int64 // calls decided locally
	Undecided   int64 // calls that could not be decided locally either
	Pending     int64 // states with units admitted locally and not recorded in the store yet
	Recorded    int64 // units that were admitted or settled locally, now recorded in the store
	Unconfirmed int64 // units that were sent to the store, without an answer
	Holds       int64 // holds of which the store does not know yet what was decided locally
	Lost        int64 // holds that the store did not have any more when it was told
	Keys        int64 // states tracked locally
	Untracked   int64 // admissions and blocks of the store not tracked because there was no room
}

// NewDegraded returns a store that decides locally while store is unavailable. Close it when it is
// no longer needed. An error wraps [driver.ErrInvalid].
func NewDegraded(store driver.Store, opts *DegradedOptions) (*Degraded, error) {
	if store == nil {
		return nil, fmt.Errorf("%w options: no store", driver.ErrInvalid)
	}
	if opts == nil || opts.Instances < 1 {
		return nil, fmt.Errorf("%w options: Instances must be 1 or more, and has no default",
			driver.ErrInvalid)
	}
	if opts.MaxKeys < 0 {
		return nil, fmt.Errorf("%w options: MaxKeys %d is negative",
			driver.ErrInvalid, opts.MaxKeys)
	}
	maxKeys := opts.MaxKeys
	if maxKeys == 0 {
		maxKeys = memorystore.DefaultMaxKeys
	}
	local, err := memorystore.New(&memorystore.Options{MaxKeys: maxKeys})
	if err != nil {
		return nil, fmt.Errorf("%w options: %w", driver.ErrInvalid, err)
	}
	s := &Degraded{store: store, local: local, background: newBackground()}
	s.availability = &availability{
		store: store, onChange: opts.OnChange,
		background: s.background, peeks: newPacer(peekPause),
	}
	s.ledger = newLedger(local, opts.Instances, maxKeys)
	s.recorder = &recorder{
		store: store, ledger: s.ledger,
		availability: s.availability, background: s.background, more: make(chan struct{}, 1),
	}
	return s, nil
}

// Take decides one demand, by the store inside or, while that is unavailable, from memory.
func (s *Degraded) Take(ctx context.Context, d driver.Demand) (driver.Result, error) {
	if s.ledger.isPending(d) && driver.CheckTake(ctx, d) == nil {
		ds, out := [1]driver.Demand{d}, [1]driver.Result{}
		err := s.decideLocally(ds[:], out[:], errPendingHold)
		if !errors.Is(err, errTold) {
			return out[0], err
		}
	}
	if s.ledger.pending.Load() > 0 && driver.CheckTake(ctx, d) == nil {
		if err := s.recorder.recordBefore(ctx, d); err != nil {
			return s.decide(ctx, d, err)
		}
	}
	ended := ctx.Err() != nil // then the store inside does nothing
	seen := s.ledger.blocks.Load()
	res, err := s.store.Take(ctx, d)
	if ended {
		return res, err
	}
	if err != nil {
		return s.decide(ctx, d, err)
	}
	s.availability.record(ctx, d, nil, res)
	s.ledger.track(d, res, res.Allowed, seen)
	return res, nil
}

// TakeAll decides several demands as one.
func (s *Degraded) TakeAll(
	ctx context.Context, ds []driver.Demand, out []driver.Result,
) error {
	if slices.ContainsFunc(ds, s.ledger.isPending) && driver.CheckTakeAll(ctx, ds, out) == nil {
		if err := s.takePending(ctx, ds, out); !errors.Is(err, errTold) {
			return err
		}
	}
	if s.ledger.pending.Load() > 0 && driver.CheckTakeAll(ctx, ds, out) == nil {
		for i := range ds {
			if err := s.recorder.recordBefore(ctx, ds[i]); err != nil {
				return s.decideAll(ctx, ds, out, err)
			}
		}
	}
	ended := ctx.Err() != nil
	seen := s.ledger.blocks.Load()
	err := s.store.TakeAll(ctx, ds, out)
	if ended {
		return err
	}
	if err != nil {
		return s.decideAll(ctx, ds, out, err)
	}
	s.availability.record(ctx, ds[0], nil, out...)
	admitted := !slices.ContainsFunc(out, func(r driver.Result) bool { return !r.Allowed })
	for i := range ds {
		s.ledger.track(ds[i], out[i], admitted, seen)
	}
	return nil
}

// takePending decides ds, some of which ask about pending holds. The store inside settles and
// renews the others: that comes first, since it may fail. The error is errTold, and nothing was
// asked, if meanwhile none is pending.
func (s *Degraded) takePending(
	ctx context.Context, ds []driver.Demand, out []driver.Result,
) error {
	var inside, local []driver.Demand
	var at []int // the indexes of inside, and then of local
	for i, d := range ds {
		switch {
		case !isHold(d) || !d.NeverRefused():
			return s.decideLocally(ds, out, errPendingHold)
		case s.ledger.isPending(d):
			local, at = append(local, d), append(at, i)
		default:
			inside, at = append(inside, d), slices.Insert(at, len(inside), i)
		}
	}
	results, n := make([]driver.Result, len(ds)), len(inside)
	if n > 0 {
		if err := s.TakeAll(ctx, inside, results[:n]); err != nil {
			return err
		}
	}
	if n < len(ds) {
		err := s.decideLocally(local, results[n:], errPendingHold)
		if errors.Is(err, errTold) {
			err = s.TakeAll(ctx, local, results[n:])
		}
		if err != nil {
			return err
		}
	}
	for i, res := range results {
		out[at[i]] = res
	}
	return nil
}

// decide decides d locally if err, with which the store inside left it undecided, says that the
// store is unavailable. Otherwise it returns err.
func (s *Degraded) decide(
	ctx context.Context, d driver.Demand, err error,
) (driver.Result, error) {
	if !s.availability.record(ctx, d, err) {
		return driver.Result{}, err
	}
	ds, out := [1]driver.Demand{d}, [1]driver.Result{}
	if err := s.decideLocally(ds[:], out[:], err); err != nil {
		return driver.Result{}, err
	}
	return out[0], nil
}

// decideAll is decide for several demands.
func (s *Degraded) decideAll(
	ctx context.Context, ds []driver.Demand, out []driver.Result, err error,
) error {
	if len(ds) == 0 || !s.availability.record(ctx, ds[0], err) {
		return err
	}
	return s.decideLocally(ds, out, err)
}

// decideLocally decides ds from memory. cause is the error of the store inside.
func (s *Degraded) decideLocally(
	ds []driver.Demand, out []driver.Result, cause error,
) error {
	if err := s.ledger.take(ds, out, cause); err != nil {
		if errors.Is(err, errTold) {
			return err
		}
		s.undecided.Add(1)
		return fmt.Errorf("%w; no decision from memory either: %w", cause, err)
	}
	s.decided.Add(1)
	s.recorder.wake()
	return nil
}

// Stats returns what the store has done so far. It takes no lock.
func (s *Degraded) Stats() DegradedStats {
	return DegradedStats{
		Unavailable: s.availability.unavailable.Load(),
		Local:       s.decided.Load(),
		Undecided:   s.undecided.Load(),
		Pending:     s.ledger.pending.Load(),
		Recorded:    s.recorder.recorded.Load(),
		Holds:       s.ledger.held.Load(),
		Lost:        s.ledger.lost.Load(),
		Unconfirmed: s.recorder.unconfirmed.Load(),
		Keys:        int64(s.local.Stats().Keys),
		Untracked:   s.ledger.untracked.Load(),
	}
}

// Close stops the background work and drops all local state, units that are not recorded yet
// included. It does not close the store inside, which still decides; while it is unavailable,
// nothing is decided any more. Its error is nil.
func (s *Degraded) Close() error {
	s.background.stop()
	err := s.local.Close()
	s.background.wait()
	return err
}
