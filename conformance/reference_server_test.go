package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// remote is a client of a simulated database server, with a transaction for each call: BEGIN, a
// lock of each row in order, the clock and the states, and COMMIT. It keeps all rules, and anything
// between store and server can be broken by faults.
type remote struct {
	server *database
	faults remoteFaults
}

// remoteFaults are the places in which a remote can be broken. The zero value breaks none.
type remoteFaults struct {
	clockAtBegin  bool // the clock is that of BEGIN
	clockOfClient bool // the clock is the right time, whatever the server's is
	clockOff      time.Duration
	clockSeconds  bool // the clock is in whole seconds

	lostUnavailable bool // a COMMIT without an answer is ErrUnavailable
	repeats         bool // a call without an answer is made again
	otherIDs        bool // each call has IDs of its own
	lostOther       bool // a COMMIT without an answer is the driver's error
	keyInErrors     bool
	noDeadline      bool // of the store's own
	deafToContext   bool // only the store's own deadline counts
	lateContended   bool // a call that gets no answer in time is ErrContended

	expiresByClient bool          // a state's end is by the right time
	sweepsByClient  bool          // what has run out is found by the right time
	sweepsEarly     time.Duration // what has run out soon is swept too
	sweepsBlind     bool          // what had run out is swept, though it was renewed meanwhile
}

const (
	remoteDeadline = 2 * time.Second       // the store's own
	remoteLatency  = 20 * time.Microsecond // of a round trip, and what a sleep adds
)

// database is the server. Its clock is true, or stepped.
type database struct {
	now func() int64 // injected, or nil

	mu     sync.Mutex
	rows   map[identity]*row
	ahead  time.Duration
	frozen chan struct{} // closed at thaw; nil: it is not frozen
	lose   bool          // the next answer to COMMIT
	closed bool
	writes int64
}

// row is a state and its lock.
type row struct {
	lock  chan struct{} // has room for one
	state []byte
	until int64
}

func newRemote(faults remoteFaults) NewStore {
	return func(_ testing.TB, now func() int64) Harness {
		server := &database{now: now, rows: make(map[identity]*row)}
		store := &remote{server, faults}
		return Harness{
			Store:  store,
			Second: func(testing.TB) driver.Store { return &remote{server, faults} },
			Writes: func() (int64, error) {
				server.mu.Lock()
				defer server.mu.Unlock()
				return server.writes, nil
			},
			Close: func() error {
				server.mu.Lock()
				defer server.mu.Unlock()
				server.closed = true
				return nil
			},
			LoseAnswer: func() error {
				server.mu.Lock()
				defer server.mu.Unlock()
				server.lose = true
				return nil
			},
			Freeze: server.freeze,
			SkewClock: func(ahead time.Duration) error {
				server.mu.Lock()
				defer server.mu.Unlock()
				server.ahead = ahead
				return nil
			},
			Sweep: store.sweep,
		}
	}
}

func (db *database) freeze() (thaw func() error, err error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	frozen := make(chan struct{})
	db.frozen = frozen
	return func() error {
		db.mu.Lock()
		defer db.mu.Unlock()
		db.frozen = nil
		close(frozen)
		return nil
	}, nil
}

// clock is the server's.
func (db *database) clock() int64 {
	if db.now != nil {
		return db.now()
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	return time.Now().Add(db.ahead).UnixMicro()
}

// trueTime is the client's clock.
func (db *database) trueTime() int64 {
	if db.now != nil {
		return db.now()
	}
	return time.Now().UnixMicro()
}

func (db *database) row(id identity) *row {
	db.mu.Lock()
	defer db.mu.Unlock()
	r, ok := db.rows[id]
	if !ok {
		r = &row{lock: make(chan struct{}, 1)}
		db.rows[id] = r
	}
	return r
}

// melted returns what is closed when the server is not frozen.
func (db *database) melted() <-chan struct{} {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.frozen != nil {
		return db.frozen
	}
	melted := make(chan struct{})
	close(melted)
	return melted
}

// trip is one round trip.
func (db *database) trip(ctx context.Context) error {
	time.Sleep(remoteLatency)
	select {
	case <-db.melted():
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

var errBroken = errors.New("the connection is broken")

// commit applies what a transaction has written, then and only then. An error means that no answer
// came; if sent is false, the COMMIT was not sent either.
func (db *database) commit(ctx context.Context, apply func()) (sent bool, err error) {
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	answered := make(chan error, 1)
	go func() {
		time.Sleep(remoteLatency)
		<-db.melted()
		db.mu.Lock()
		lost := db.lose
		db.lose = false
		db.mu.Unlock()
		apply()
		time.Sleep(remoteLatency)
		if lost {
			answered <- errBroken
		} else {
			<-db.melted()
			answered <- nil
		}
	}()
	select {
	case err := <-answered:
		return true, err
	case <-ctx.Done():
		return true, ctx.Err()
	}
}

func (r *remote) Take(ctx context.Context, d driver.Demand) (driver.Result, error) {
	if err := driver.CheckTake(ctx, d); err != nil {
		return driver.Result{}, err
	}
	var out [1]driver.Result
	err := r.decide(ctx, []driver.Demand{d}, out[:])
	if err != nil {
		return driver.Result{}, err
	}
	return out[0], nil
}

func (r *remote) TakeAll(ctx context.Context, ds []driver.Demand, out []driver.Result) error {
	if err := driver.CheckTakeAll(ctx, ds, out); err != nil {
		return err
	}
	return r.decide(ctx, ds, out)
}

func (r *remote) decide(ctx context.Context, ds []driver.Demand, out []driver.Result) error {
	db := r.server
	db.mu.Lock()
	closed := db.closed
	db.mu.Unlock()
	if closed {
		return driver.ErrClosed
	}
	if r.faults.deafToContext {
		ctx = context.WithoutCancel(ctx)
	}
	if !r.faults.noDeadline {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, remoteDeadline)
		defer cancel()
	}
	if r.faults.otherIDs {
		ds = slices.Clone(ds)
		for i := range ds {
			if ds[i].Op == driver.OpHold {
				ds[i].ID = rand.Uint64()
			}
		}
	}
	sent, err := r.transact(ctx, ds, out)
	if sent && err != nil && r.faults.repeats {
		sent, err = r.transact(ctx, ds, out)
	}
	if err == nil || errors.Is(err, driver.ErrUnavailable) {
		return err
	}
	if r.faults.keyInErrors {
		err = fmt.Errorf("canceling statement: state of %s: %w", ds[0].Key, err)
	}
	switch {
	case r.faults.lateContended && !sent:
		return fmt.Errorf("%w: %w", driver.ErrContended, err)
	case sent && r.faults.lostOther:
		return err
	case sent && !r.faults.lostUnavailable:
		return fmt.Errorf("%w: %w", driver.ErrOutcomeUnknown, err)
	}
	return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
}

// transact decides in one transaction. sent reports whether COMMIT was sent.
func (r *remote) transact(
	ctx context.Context, ds []driver.Demand, out []driver.Result,
) (sent bool, err error) {
	db := r.server
	if err := db.trip(ctx); err != nil {
		return false, err
	}
	now := r.clock()
	rows, unlock, err := r.lock(ctx, ds)
	if err != nil {
		return false, err
	}
	defer func() {
		if !sent { // else the server unlocks
			unlock()
		}
	}()
	if err := db.trip(ctx); err != nil {
		return false, err
	}
	if !r.faults.clockAtBegin {
		now = r.clock()
	}
	steps, err := r.steps(rows, ds, now, out)
	if err != nil {
		return false, err
	}
	return db.commit(ctx, func() {
		defer unlock()
		for i, s := range steps {
			if s.keep > 0 {
				r.write(rows[i], s, now)
			}
		}
	})
}

func (r *remote) clock() int64 {
	now := r.server.clock()
	if r.faults.clockOfClient {
		now = r.server.trueTime()
	}
	if r.faults.clockSeconds {
		now -= now % 1e6
	}
	return now + r.faults.clockOff.Microseconds()
}

// lock locks the rows of ds in the order of their identities.
func (r *remote) lock(
	ctx context.Context, ds []driver.Demand,
) (rows []*row, unlock func(), err error) {
	var locked []*row
	unlock = func() {
		for _, row := range locked {
			<-row.lock
		}
	}
	for _, d := range ds {
		rows = append(rows, r.server.row(identityOf(d)))
	}
	for _, i := range lockOrder(ds) {
		if err := r.server.trip(ctx); err != nil {
			unlock()
			return nil, nil, err
		}
		select {
		case rows[i].lock <- struct{}{}:
			locked = append(locked, rows[i])
		case <-ctx.Done():
			unlock()
			return nil, nil, r.server.lockError(ctx.Err())
		}
	}
	return rows, unlock, nil
}

// lockError returns the error of a call that got no lock in time: other calls keep it, unless the
// server is frozen.
func (db *database) lockError(err error) error {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.frozen != nil {
		return err
	}
	return fmt.Errorf("%w: no lock in time: %w", driver.ErrContended, err)
}

// steps decides ds on copies of the states.
func (r *remote) steps(
	rows []*row, ds []driver.Demand, now int64, out []driver.Result,
) ([]step, error) {
	steps := make([]step, len(ds))
	run := func(
		f func(driver.Demand, []byte, int64) ([]byte, time.Duration, driver.Result),
	) error {
		for i, d := range ds {
			s := &steps[i]
			if s.next, s.keep, s.res = f(d, r.read(rows[i], now), now); s.keep < 0 {
				return driver.ErrCorruptState
			}
			out[i] = s.res
		}
		return nil
	}
	if len(ds) > 1 {
		if err := run(driver.Demand.Peek); err != nil || !allowed(out) {
			return steps, err
		}
		ds = driver.Grant(ds, out)
	}
	return steps, run(driver.Demand.Step)
}

// read returns a copy of a state that has not run out.
func (r *remote) read(row *row, now int64) []byte {
	r.server.mu.Lock()
	defer r.server.mu.Unlock()
	if r.faults.expiresByClient && now >= row.until {
		return nil
	}
	return bytes.Clone(row.state)
}

func (r *remote) write(row *row, s step, now int64) {
	if r.faults.expiresByClient {
		now = r.server.trueTime()
	}
	r.server.mu.Lock()
	defer r.server.mu.Unlock()
	row.state, row.until = s.next, now+s.keep.Microseconds()
	r.server.writes++
}

// sweep finds states that have run out, and then deletes those that still have.
func (r *remote) sweep() error {
	db := r.server
	past := func() int64 {
		now := db.clock()
		if r.faults.sweepsByClient {
			now = db.trueTime()
		}
		return now + r.faults.sweepsEarly.Microseconds()
	}
	now := past()
	var over []*row
	db.mu.Lock()
	for _, row := range db.rows {
		if len(row.state) > 0 && now >= row.until {
			over = append(over, row)
		}
	}
	db.mu.Unlock()
	if len(over) == 0 {
		return nil
	}
	time.Sleep(time.Millisecond)
	for _, row := range over {
		row.lock <- struct{}{}
		now := past()
		db.mu.Lock()
		if now >= row.until || r.faults.sweepsBlind {
			row.state = nil
		}
		db.mu.Unlock()
		<-row.lock
	}
	return nil
}
