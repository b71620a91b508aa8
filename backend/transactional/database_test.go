package transactional_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/truewindow/ratelimit/backend/transactional"
	"github.com/truewindow/ratelimit/driver"
)

// database is a map behind one lock, whose transactions ignore contexts.
type database struct {
	mu      sync.Mutex // held by a transaction from Load on
	memory  sync.Mutex // held while rows are read or written
	rows    map[string]row
	writes  int64
	mistake string // of its author; see mistakes_test.go

	// What a test sets to make a method fail.
	begin, load, save, commit error
	short                     bool   // Load returns one state too few
	clock                     int64  // of Load, if it is not 0
	beforeLoad, beforeCommit  func() // or nil
	lose                      bool   // the answer to the next Commit
}

type row struct {
	state   []byte
	expires int64
}

// roundTrip is how long the next statement of a transaction takes to arrive.
const roundTrip = 100 * time.Microsecond

var errLost = errors.New("the connection broke")

func newDatabase() *database { return &database{rows: make(map[string]row)} }

// transaction is a transaction of a database.
type transaction struct {
	db     *database
	locked bool
	saved  map[string]row
}

func (db *database) tx(context.Context) (transactional.Tx, error) {
	return &transaction{db: db, saved: make(map[string]row)}, db.begin
}

func (t *transaction) Load(
	_ context.Context, keys []string,
) (states [][]byte, now int64, err error) {
	if t.db.beforeLoad != nil {
		t.db.beforeLoad()
	}
	if t.db.mistake == "lock after read" {
		states = t.read(keys)
	}
	if t.db.mistake != "no lock" {
		t.db.mu.Lock()
		t.locked = true
	}
	if states == nil {
		states = t.read(keys)
	}
	if !t.locked || t.db.mistake == "lock after read" {
		time.Sleep(roundTrip) // in which another transaction reads the same states
	}
	if t.db.short {
		states = states[1:]
	}
	if now = t.db.clock; now == 0 {
		now = time.Now().UnixMicro()
	}
	if t.db.mistake == "clock in milliseconds" {
		now /= 1000
	}
	return states, now, t.db.load
}

func (t *transaction) read(keys []string) (states [][]byte) {
	t.db.memory.Lock()
	defer t.db.memory.Unlock()
	for _, key := range keys {
		states = append(states, t.db.rows[t.db.name(key)].state)
	}
	if t.db.mistake == "states in another order" {
		slices.Reverse(states)
	}
	return states
}

// name returns the name of a row.
func (db *database) name(key string) string {
	switch db.mistake {
	case "ignores case":
		return strings.ToLower(key)
	case "cuts keys":
		return key[:min(64, len(key))]
	}
	return key
}

func (t *transaction) Save(_ context.Context, states []transactional.State) error {
	for _, s := range states {
		t.put(s)
	}
	return t.db.save
}

func (t *transaction) put(s transactional.State) {
	switch t.db.mistake {
	case "cuts states":
		s.Bytes = s.Bytes[:min(100, len(s.Bytes))]
	case "expires early":
		s.Expires -= time.Millisecond.Microseconds()
	case "keeps what is deleted":
		if len(s.Bytes) == 0 {
			return
		}
	case "inserts only":
		t.db.memory.Lock()
		defer t.db.memory.Unlock()
		if _, ok := t.db.rows[s.Key]; ok {
			return
		}
	}
	t.saved[t.db.name(s.Key)] = row{bytes.Clone(s.Bytes), s.Expires}
}

func (t *transaction) Commit(context.Context) error {
	if t.db.beforeCommit != nil {
		t.db.beforeCommit()
	}
	if t.db.commit != nil {
		return t.db.commit
	}
	t.db.memory.Lock()
	defer t.db.memory.Unlock()
	t.db.writes++
	maps.Copy(t.db.rows, t.saved)
	if t.db.lose {
		t.db.lose = false
		if t.db.mistake == "takes a lost answer for a rollback" {
			return fmt.Errorf("%w: %w", driver.ErrUnavailable, errLost)
		}
		return errLost
	}
	return nil
}

func (t *transaction) Rollback() {
	if t.locked {
		t.locked = false
		t.db.mu.Unlock()
	}
}

// freeze keeps the lock of the database until thaw is called.
func (db *database) freeze() (thaw func() error, err error) {
	db.mu.Lock()
	return func() error {
		db.mu.Unlock()
		return nil
	}, nil
}

func (db *database) sweep(now int64) {
	if db.mistake == "sweeps by another clock" {
		now += time.Hour.Microseconds()
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	maps.DeleteFunc(db.rows, func(_ string, r row) bool { return r.expires <= now })
}
