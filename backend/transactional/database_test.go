package transactional_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/truewindow/ratelimit/backend/transactional"
)

// database is a map behind one lock, whose transactions ignore contexts.
type database struct {
	mu     sync.Mutex // held by a transaction from Load on
	rows   map[string]row
	writes int64

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
	t.db.mu.Lock()
	t.locked = true
	for _, key := range keys {
		states = append(states, t.db.rows[key].state)
	}
	if t.db.short {
		states = states[1:]
	}
	if now = t.db.clock; now == 0 {
		now = time.Now().UnixMicro()
	}
	return states, now, t.db.load
}

func (t *transaction) Save(_ context.Context, key string, state []byte, expires int64) error {
	t.saved[key] = row{bytes.Clone(state), expires}
	return t.db.save
}

func (t *transaction) Commit(context.Context) error {
	if t.db.beforeCommit != nil {
		t.db.beforeCommit()
	}
	if t.db.commit != nil {
		return t.db.commit
	}
	t.db.writes++
	maps.Copy(t.db.rows, t.saved)
	if t.db.lose {
		t.db.lose = false
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
	db.mu.Lock()
	defer db.mu.Unlock()
	maps.DeleteFunc(db.rows, func(_ string, r row) bool { return r.expires <= now })
}
