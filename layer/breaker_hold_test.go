package layer_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/testkit/limittest"
	"github.com/truewindow/ratelimit/layer"
)

// losing is a store that fails with err, after a decision or not, or loses answers until the
// context ends.
type losing struct {
	driver.Store

	mu      sync.Mutex
	err     error
	decides bool
	hangs   bool
	peeks   []error // of OpPeek
}

func (s *losing) set(err error, decides, hangs bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err, s.decides, s.hangs = err, decides, hangs
}

func (s *losing) Take(ctx context.Context, d driver.Demand) (res driver.Result, err error) {
	s.mu.Lock()
	failed, decides, hangs := s.err, s.decides, s.hangs
	s.mu.Unlock()
	if failed == nil || decides {
		res, err = s.Store.Take(ctx, d)
	}
	if d.Op == driver.OpPeek {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.peeks = append(s.peeks, err)
		return res, err
	}
	if hangs && err == nil {
		<-ctx.Done()
		return driver.Result{}, fmt.Errorf("%w: %w", driver.ErrOutcomeUnknown, ctx.Err())
	}
	if failed != nil {
		return driver.Result{}, failed
	}
	return res, err
}

// TestBreakerSettles: failed settlements open a breaker, its trial may be a settlement, and however
// often a Commit is repeated meanwhile, also after lost answers, it counts once.
func TestBreakerSettles(t *testing.T) {
	for _, failure := range []error{driver.ErrUnavailable, driver.ErrOutcomeUnknown} {
		synctest.Test(t, func(t *testing.T) {
			store := &losing{Store: limittest.NewStore(t, nil)}
			opts := &layer.BreakerOptions{Failures: 3, Pause: time.Second}
			b, err := layer.NewBreaker(store, opts)
			if err != nil {
				t.Fatal(err)
			}
			tokens := limittest.NewBudget(t, b, ratelimit.PerMinute("tokens", 100))
			r, err := tokens.Reserve(t.Context(), "k", 50)
			if err != nil {
				t.Fatal(err)
			}
			commit := func(want error, state layer.BreakerState) {
				t.Helper()
				if err := r.Commit(t.Context(), 30); !errors.Is(err, want) {
					t.Errorf("Commit returned %v, want %v", err, want)
				}
				if got := b.Stats().State; got != state {
					t.Errorf("the breaker is %v, want %v", got, state)
				}
			}
			store.set(failure, failure == driver.ErrOutcomeUnknown, false)
			commit(failure, layer.BreakerClosed)
			commit(failure, layer.BreakerClosed)
			commit(failure, layer.BreakerOpen)
			commit(layer.ErrBreakerOpen, layer.BreakerOpen)
			time.Sleep(time.Second)
			commit(failure, layer.BreakerOpen)
			time.Sleep(time.Second)
			store.set(nil, false, false)
			commit(nil, layer.BreakerClosed)
			if res, err := tokens.Peek(t.Context(), "k"); err != nil || res.Remaining != 70 {
				t.Errorf("%+v, %v; want 30 units charged", res, err)
			}
		})
	}
}

// TestTimeoutSettles: a Commit whose answer is too late counts once when it is repeated.
func TestTimeoutSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &losing{Store: limittest.NewStore(t, nil)}
		timeout, err := layer.NewTimeout(store, 100*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		tokens := limittest.NewBudget(t, timeout, ratelimit.PerMinute("tokens", 100))
		r, err := tokens.Reserve(t.Context(), "k", 50)
		if err != nil {
			t.Fatal(err)
		}
		store.set(nil, false, true)
		for range 3 {
			if err := r.Commit(t.Context(), 30); !errors.Is(err, driver.ErrOutcomeUnknown) {
				t.Errorf("Commit returned %v", err)
			}
		}
		store.set(nil, false, false)
		if err := r.Commit(t.Context(), 30); err != nil {
			t.Error(err)
		}
		if res, err := tokens.Peek(t.Context(), "k"); err != nil || res.Remaining != 70 {
			t.Errorf("%+v, %v; want 30 units charged", res, err)
		}
	})
}

// TestBreakerPeeksAtHolds: the peek after a hold or a settlement whose caller has left is one that
// an algorithm of calls in flight answers, and changes nothing.
func TestBreakerPeeksAtHolds(t *testing.T) {
	for _, op := range []driver.Op{driver.OpHold, driver.OpSettle} {
		synctest.Test(t, func(t *testing.T) {
			store := &losing{Store: limittest.NewStore(t, nil)}
			b, err := layer.NewBreaker(store, nil)
			if err != nil {
				t.Fatal(err)
			}
			calls := limittest.NewInFlight(t, b, 1)
			d := driver.Demand{Key: "k", Algorithm: calls.Algorithms()[0], Op: op, ID: 1}
			if op == driver.OpHold {
				d.N = 1
			}
			store.set(nil, false, true)
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			if _, err := b.Take(ctx, d); !errors.Is(err, driver.ErrOutcomeUnknown) {
				t.Errorf("%v: %v", op, err)
			}
			synctest.Wait()
			if len(store.peeks) != 1 || store.peeks[0] != nil || b.Stats().Failures != 0 {
				t.Errorf("%v: peeks %v, %+v", op, store.peeks, b.Stats())
			}
		})
	}
}
