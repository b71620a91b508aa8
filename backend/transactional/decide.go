package transactional

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// The phases of a transaction. The first change from waiting decides: either the transaction
// begins, or the caller abandons it. So does the first change from pending: either the transaction
// begins to commit, or the caller abandons it and reports that nothing was recorded.
const (
	waiting int32 = iota // for its turn
	pending
	committing
	abandoned
)

// transaction decides the demands of one call.
type transaction struct {
	store   *Store
	demands []driver.Demand
	results []driver.Result // read only after run has returned nil
	keys    []string        // as stored, sorted
	turn    *turn
	phase   atomic.Int32
}

func newTransaction(s *Store, ds []driver.Demand) *transaction {
	t := &transaction{store: s, demands: ds, results: make([]driver.Result, len(ds)),
		keys: make([]string, len(ds))}
	for i, d := range ds {
		t.keys[i] = d.StoredKey()
	}
	slices.Sort(t.keys)
	t.turn = s.queue.enter(t.keys)
	return t
}

// state is the state of one demand, and what is to be written of it.
type state struct {
	key   string // as stored
	bytes []byte
	next  []byte
	keep  time.Duration
}

// run decides the demands, and then ends the turn.
func (t *transaction) run(ctx context.Context) (none struct{}, err error) {
	if !t.phase.CompareAndSwap(waiting, pending) {
		return none, nil
	}
	answered := false // if it panics
	defer func() { t.turn.leave(answered) }()
	err = t.transact(ctx)
	answered = err == nil || errors.Is(err, driver.ErrUnavailable) && !driver.IsOutage(err)
	return none, err
}

func (t *transaction) transact(ctx context.Context) error {
	tx, err := t.store.begin(ctx)
	if err != nil {
		return unavailable(err)
	}
	defer tx.Rollback()
	states, now, err := t.load(ctx, tx)
	if err != nil {
		return err
	}
	if err := t.decide(states, now); err != nil {
		return err
	}
	wrote := false
	for _, s := range states {
		if s.keep == 0 {
			continue
		}
		wrote = true
		if err := tx.Save(ctx, s.key, s.next, now+s.keep.Microseconds()); err != nil {
			return unavailable(err)
		}
	}
	if !wrote || !t.phase.CompareAndSwap(pending, committing) {
		return nil
	}
	if err = tx.Commit(ctx); errors.Is(err, driver.ErrUnavailable) {
		t.phase.Store(pending) // the server has rolled back
	}
	return err
}

func unavailable(err error) error { return fmt.Errorf("%w: %w", driver.ErrUnavailable, err) }

// load returns the states of the demands, in the order of these.
func (t *transaction) load(ctx context.Context, tx Tx) (states []state, now int64, err error) {
	loaded, now, err := tx.Load(ctx, t.keys)
	switch {
	case err != nil:
		return nil, 0, unavailable(err)
	case len(loaded) != len(t.keys):
		return nil, 0, fmt.Errorf("%w: Load returned %d states for %d keys",
			driver.ErrUnavailable, len(loaded), len(t.keys))
	}
	if t.store.now != nil {
		now = t.store.now()
	}
	if now < 0 || now >= endOfTime {
		return nil, 0, fmt.Errorf("%w: the clock of Load, %d µs since the epoch, is out of range",
			driver.ErrUnavailable, now)
	}
	states = make([]state, len(t.demands))
	for i, d := range t.demands {
		states[i].key = d.StoredKey()
		place, _ := slices.BinarySearch(t.keys, states[i].key)
		states[i].bytes = loaded[place]
	}
	return states, now, nil
}

// decide runs the steps. For several demands it peeks at all first, and continues only if all are
// allowed.
func (t *transaction) decide(states []state, now int64) error {
	demands := t.demands
	if len(states) > 1 {
		allowed, err := t.step(demands, states, now, driver.Demand.Peek)
		if err != nil || !allowed {
			return err
		}
		demands = driver.Grant(demands, t.results)
	}
	_, err := t.step(demands, states, now, driver.Demand.Step)
	return err
}

func (t *transaction) step(demands []driver.Demand, states []state, now int64, step func(
	d driver.Demand, state []byte, now int64,
) ([]byte, time.Duration, driver.Result)) (allowed bool, err error) {
	allowed = true
	for i := range states {
		s := &states[i]
		// The bytes may be the database's own, and a step writes into them.
		s.next, s.keep, t.results[i] = step(demands[i], slices.Clone(s.bytes), now)
		if s.keep < 0 {
			return false, driver.ErrCorruptState
		}
		allowed = allowed && t.results[i].Allowed
	}
	return allowed, nil
}
