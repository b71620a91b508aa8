// Package teamstore is a team's own store, served by the daemon: it keeps states in memory, and in
// a file while the process is down.
package teamstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/truewindow/ratelimit/backend"
	"github.com/truewindow/ratelimit/driver"
)

func init() { backend.Register("file", open) }

// open opens a store by a URL such as file:/var/lib/limits.json.
func open(_ context.Context, u *backend.URL) (*backend.Store, error) {
	if err := u.Check(); err != nil { // rejects parameters: this store has none
		return nil, err
	}
	if u.Path == "" {
		return nil, fmt.Errorf("%w options: no file", driver.ErrInvalid)
	}
	store := &Store{file: u.Path, now: func() int64 { return time.Now().UnixMicro() }}
	if err := store.load(); err != nil {
		return nil, err
	}
	return &backend.Store{Store: store, Close: store.save}, nil
}

// A Store keeps states in a map. It never deletes any, which a long-running store must do.
type Store struct {
	file   string
	now    func() int64 // microseconds since the Unix epoch
	mu     sync.Mutex
	states map[string][]byte
}

var _ driver.Store = (*Store)(nil)

// Take implements [driver.Store].
func (s *Store) Take(ctx context.Context, d driver.Demand) (driver.Result, error) {
	var out [1]driver.Result
	err := s.TakeAll(ctx, []driver.Demand{d}, out[:])
	return out[0], err
}

// TakeAll implements [driver.Store].
func (s *Store) TakeAll(
	ctx context.Context, ds []driver.Demand, out []driver.Result,
) error {
	if err := driver.CheckTakeAll(ctx, ds, out); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for _, run := range []step{driver.Demand.Peek, driver.Demand.Step} {
		admitted := true
		for i, d := range ds {
			next, keep, res := run(d, s.states[d.StoredKey()], now)
			if keep < 0 {
				return driver.ErrCorruptState
			} else if keep > 0 {
				s.states[d.StoredKey()] = next
			}
			out[i], admitted = res, admitted && res.Allowed
		}
		if !admitted {
			break
		}
		ds = driver.Grant(ds, out)
	}
	return nil
}

type step func(
	d driver.Demand, state []byte, now int64,
) ([]byte, time.Duration, driver.Result)

func (s *Store) load() error {
	s.states = make(map[string][]byte)
	text, err := os.ReadFile(s.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(text, &s.states)
}

func (s *Store) save() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	text, err := json.Marshal(s.states)
	if err != nil {
		return err
	}
	return os.WriteFile(s.file, text, 0o600)
}
