package conformance_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/conformance"
	"github.com/truewindow/ratelimit/driver"
)

// A MapStore keeps states in a map. It never deletes one, which a store for production must do.
type MapStore struct {
	now    func() int64 // microseconds since the Unix epoch
	mu     sync.Mutex
	states map[string][]byte
}

func (s *MapStore) Take(ctx context.Context, d driver.Demand) (driver.Result, error) {
	var out [1]driver.Result
	err := s.TakeAll(ctx, []driver.Demand{d}, out[:])
	return out[0], err
}

func (s *MapStore) TakeAll(
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
			key := d.StoredKey()
			next, keep, res := run(d, s.states[key], now)
			if keep < 0 {
				return driver.ErrCorruptState
			} else if keep > 0 {
				s.states[key] = next
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

func TestMapStore(t *testing.T) {
	conformance.Run(t, func(_ testing.TB, now func() int64) conformance.Harness {
		if now == nil { // the rule needs the store's own clock
			now = func() int64 { return time.Now().UnixMicro() }
		}
		store := &MapStore{now: now, states: make(map[string][]byte)}
		return conformance.Harness{
			Store:  store,
			Second: func(testing.TB) driver.Store { return store },
		}
	}, nil)
}

// A limiter on a store of your own.
func Example_mapStore() {
	now := func() int64 { return time.Now().UnixMicro() }
	store := &MapStore{now: now, states: make(map[string][]byte)}
	limiter, err := ratelimit.New(store, algorithm.SlidingLog(driver.PerMinute("login", 2)))
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
