package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/conformance"
)

// A SimpleStore is a complete store: a map and a lock. It never forgets, which a store that runs for long has to.
type SimpleStore struct {
	now    func() int64 // microseconds since the Unix epoch
	mu     sync.Mutex
	states map[stateID][]byte
}

type stateID struct{ key, limit, algorithm string }

var _ ratelimit.Store = (*SimpleStore)(nil)

func NewSimpleStore(now func() int64) *SimpleStore {
	if now == nil {
		now = func() int64 { return time.Now().UnixMicro() }
	}
	return &SimpleStore{now: now, states: make(map[stateID][]byte)}
}

func (s *SimpleStore) Take(ctx context.Context, d ratelimit.Demand) (ratelimit.Result, error) {
	if err := ratelimit.CheckTake(ctx, d); err != nil {
		return ratelimit.Result{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	id := stateID{d.Key, d.Algorithm.Limit().Name, d.Algorithm.Name()}
	next, keep, res := d.Step(s.states[id], s.now())
	switch {
	case keep < 0:
		return ratelimit.Result{}, ratelimit.ErrCorruptState
	case keep > 0 && len(next) == 0:
		delete(s.states, id)
	case keep > 0:
		s.states[id] = next
	}
	return res, nil
}

// TakeAll is lacking: a Limiter of several limits cannot use this store.
func (s *SimpleStore) TakeAll(ctx context.Context, ds []ratelimit.Demand, out []ratelimit.Result) error {
	if err := ratelimit.CheckTakeAll(ctx, ds, out); err != nil {
		return err
	}
	return fmt.Errorf("simplestore: several demands as one: %w", errors.ErrUnsupported)
}

func TestSimpleStore(t *testing.T) {
	conformance.Run(t, func(_ testing.TB, now func() int64) conformance.Harness {
		return conformance.Harness{Store: NewSimpleStore(now)}
	}, &conformance.Options{Except: map[string]string{
		"takeall":      "a SimpleStore decides one demand at a time",
		"takeall-keys": "a SimpleStore decides one demand at a time",
	}})
}

// ExampleStore limits on a store of one's own.
func ExampleStore() {
	store := NewSimpleStore(nil)
	limiter, err := ratelimit.New(store, algorithm.SlidingLog(ratelimit.PerMinute(2)))
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		res, err := limiter.Allow(context.Background(), "user:42")
		fmt.Println(res.Allowed, res.Remaining, err)
	}
	// Output:
	// true 1 <nil>
	// true 0 <nil>
	// false 0 <nil>
}
