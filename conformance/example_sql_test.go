package conformance_test

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/truewindow/ratelimit"
)

// An SQLStore keeps states in PostgreSQL. It needs the isolation level READ COMMITTED, which is the
// default, and the table
//
//	CREATE TABLE ratelimit_states (
//		key     text COLLATE "C" PRIMARY KEY, -- Demand.StoredKey
//		state   bytea  NOT NULL,
//		expires bigint NOT NULL               -- µs since the Unix epoch, on the server's clock
//	);
//	CREATE INDEX ON ratelimit_states (expires);
type SQLStore struct {
	db      *sql.DB
	timeout time.Duration // the store's own deadline
	now     func() int64  // nil, but in tests: the server's clock
}

var _ ratelimit.Store = (*SQLStore)(nil)

const (
	sqlLock  = `SELECT pg_advisory_xact_lock($1)`
	sqlClock = `SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint`
	sqlRead  = `SELECT state FROM ratelimit_states WHERE key = $1`
	sqlWrite = `INSERT INTO ratelimit_states (key, state, expires) VALUES ($1, $2, $3)
		ON CONFLICT (key) DO UPDATE SET state = excluded.state, expires = excluded.expires`
	sqlDelete = `DELETE FROM ratelimit_states WHERE key = $1`
	sqlSweep  = `DELETE FROM ratelimit_states
		WHERE expires <= (extract(epoch FROM statement_timestamp()) * 1000000)::bigint`
)

func (s *SQLStore) Take(ctx context.Context, d ratelimit.Demand) (ratelimit.Result, error) {
	if err := ratelimit.CheckTake(ctx, d); err != nil {
		return ratelimit.Result{}, err
	}
	var out [1]ratelimit.Result
	if err := s.decide(ctx, []ratelimit.Demand{d}, out[:]); err != nil {
		return ratelimit.Result{}, err
	}
	return out[0], nil
}

func (s *SQLStore) TakeAll(
	ctx context.Context, ds []ratelimit.Demand, out []ratelimit.Result,
) error {
	if err := ratelimit.CheckTakeAll(ctx, ds, out); err != nil {
		return err
	}
	return s.decide(ctx, ds, out)
}

// sqlState is a state in a transaction, and what is to be written of it.
type sqlState struct {
	key   string // as stored
	lock  int64
	state []byte
	next  []byte
	keep  time.Duration
}

func (s *SQLStore) decide(
	ctx context.Context, ds []ratelimit.Demand, out []ratelimit.Result,
) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("%w: %w", ratelimit.ErrUnavailable, err)
	}
	defer tx.Rollback() // does nothing after Commit
	states, now, err := s.load(ctx, tx, ds)
	if err != nil {
		return fmt.Errorf("%w: %w", ratelimit.ErrUnavailable, err)
	}
	if err := stepAll(states, ds, now, out); err != nil {
		return err
	}
	wrote := false
	for _, st := range states {
		if st.keep == 0 {
			continue
		}
		if wrote = true; len(st.next) == 0 {
			_, err = tx.ExecContext(ctx, sqlDelete, st.key)
		} else {
			_, err = tx.ExecContext(ctx, sqlWrite, st.key, st.next, now+st.keep.Microseconds())
		}
		if err != nil { // nothing is recorded without COMMIT
			return fmt.Errorf("%w: %w", ratelimit.ErrUnavailable, err)
		}
	}
	if !wrote {
		return nil
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("%w: %w", ratelimit.ErrOutcomeUnknown, err)
	}
	return nil
}

// load locks the states of ds, all callers in the same order. Then it reads the states, and last
// the clock: a sweep between the two must not delete what has not run out at the time of the
// decision.
func (s *SQLStore) load(
	ctx context.Context, tx *sql.Tx, ds []ratelimit.Demand,
) (states []*sqlState, now int64, err error) {
	for _, d := range ds {
		key := d.StoredKey()
		h := fnv.New64a()
		h.Write([]byte(key))
		states = append(states, &sqlState{key: key, lock: int64(h.Sum64())})
	}
	inOrder := slices.SortedFunc(slices.Values(states),
		func(a, b *sqlState) int { return cmp.Compare(a.lock, b.lock) })
	for _, st := range inOrder {
		if _, err := tx.ExecContext(ctx, sqlLock, st.lock); err != nil {
			return nil, 0, err
		}
	}
	for _, st := range states {
		err := tx.QueryRowContext(ctx, sqlRead, st.key).Scan(&st.state)
		if err != nil && err != sql.ErrNoRows {
			return nil, 0, err
		}
	}
	if s.now != nil {
		return states, s.now(), nil
	}
	err = tx.QueryRowContext(ctx, sqlClock).Scan(&now)
	return states, now, err
}

// stepAll runs the steps: of several demands first the peeks, and the steps if all are allowed.
func stepAll(states []*sqlState, ds []ratelimit.Demand, now int64, out []ratelimit.Result) error {
	run := func(step func(
		d ratelimit.Demand, state []byte, now int64,
	) ([]byte, time.Duration, ratelimit.Result)) (admitted bool, err error) {
		admitted = true
		for i, st := range states {
			st.next, st.keep, out[i] = step(ds[i], slices.Clone(st.state), now)
			if st.keep < 0 {
				return false, ratelimit.ErrCorruptState
			}
			admitted = admitted && out[i].Allowed
		}
		return admitted, nil
	}
	if len(ds) > 1 {
		if admitted, err := run(ratelimit.Demand.Peek); err != nil || !admitted {
			return err
		}
	}
	_, err := run(ratelimit.Demand.Step)
	return err
}

// Sweep deletes what has run out. Call it now and then.
func (s *SQLStore) Sweep(ctx context.Context) error {
	_, err := s.db.ExecContext(ctx, sqlSweep)
	return err
}
