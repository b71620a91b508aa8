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

// The phases of a transaction. The first change from pending decides: either the transaction begins
// to commit, or the caller abandons it and reports that nothing was recorded.
const (
	pending int32 = iota
	committing
	abandoned
)

// transaction decides the demands of one call.
type transaction struct {
	store   *Store
	demands []driver.Demand
	results []driver.Result // read only after run has returned nil
	phase   atomic.Int32
}

// state is the state of one demand, and what is to be written of it.
type state struct {
	key   string // as stored
	bytes []byte
	next  []byte
	keep  time.Duration
}

func (t *transaction) run(ctx context.Context) (none struct{}, err error) {
	tx, err := t.store.begin(ctx)
	if err != nil {
		return none, unavailable(err)
	}
	defer tx.Rollback()
	states, now, err := t.load(ctx, tx)
	if err != nil {
		return none, err
	}
	if err := t.decide(states, now); err != nil {
		return none, err
	}
	wrote := false
	for _, s := range states {
		if s.keep == 0 {
			continue
		}
		wrote = true
		if err := tx.Save(ctx, s.key, s.next, now+s.keep.Microseconds()); err != nil {
			return none, unavailable(err)
		}
	}
	if !wrote || !t.phase.CompareAndSwap(pending, committing) {
		return none, nil
	}
	if err = tx.Commit(ctx); errors.Is(err, driver.ErrUnavailable) {
		t.phase.Store(pending) // the server has rolled back
	}
	return none, err
}

func unavailable(err error) error { return fmt.Errorf("%w: %w", driver.ErrUnavailable, err) }

// load returns the states of the demands, in the order of these.
func (t *transaction) load(ctx context.Context, tx Tx) (states []state, now int64, err error) {
	states = make([]state, len(t.demands))
	keys := make([]string, len(t.demands))
	for i, d := range t.demands {
		states[i].key = d.StoredKey()
		keys[i] = states[i].key
	}
	slices.Sort(keys)
	loaded, now, err := tx.Load(ctx, keys)
	switch {
	case err != nil:
		return nil, 0, unavailable(err)
	case len(loaded) != len(keys):
		return nil, 0, fmt.Errorf("%w: Load returned %d states for %d keys",
			driver.ErrUnavailable, len(loaded), len(keys))
	}
	if t.store.now != nil {
		now = t.store.now()
	}
	if now < 0 || now >= endOfTime {
		return nil, 0, fmt.Errorf("%w: the clock of Load, %d µs since the epoch, is out of range",
			driver.ErrUnavailable, now)
	}
	for i := range states {
		place, _ := slices.BinarySearch(keys, states[i].key)
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
