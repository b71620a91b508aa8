package layer_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/layer"
)

// delayed is a store that answers after latency, and gives up after 100 ms as stores on servers do.
type delayed struct {
	driver.Store
	latency atomic.Int64 // a time.Duration
	peeks   atomic.Int64
	panics  atomic.Bool // on peeks
}

func (s *delayed) wait(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	select {
	case <-time.After(time.Duration(s.latency.Load())):
		return nil
	case <-within.Done():
		return fmt.Errorf("%w: %w", driver.ErrOutcomeUnknown, within.Err())
	}
}

func (s *delayed) Take(ctx context.Context, d driver.Demand) (driver.Result, error) {
	if d.Op == driver.OpPeek {
		s.peeks.Add(1)
		if s.panics.Load() {
			panic("planted")
		}
	}
	if err := s.wait(ctx); err != nil {
		return driver.Result{}, err
	}
	return s.Store.Take(context.WithoutCancel(ctx), d)
}

func (s *delayed) TakeAll(
	ctx context.Context, ds []driver.Demand, out []driver.Result,
) error {
	if err := s.wait(ctx); err != nil {
		return err
	}
	return s.Store.TakeAll(context.WithoutCancel(ctx), ds, out)
}

// hurry makes calls with a deadline of 20 ms from 25 goroutines, for a second. None may be decided
// locally.
func hurry(t *testing.T, s driver.Store) {
	t.Helper()
	var wg sync.WaitGroup
	for i := range 25 {
		wg.Go(func() {
			for range 50 {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				ds, out := []driver.Demand{{Key: "k", Algorithm: eight, N: 1}},
					make([]driver.Result, 1)
				var err error
				if i%2 == 0 {
					out[0], err = s.Take(ctx, ds[0])
				} else {
					err = s.TakeAll(ctx, ds, out)
				}
				cancel()
				if !errors.Is(err, context.DeadlineExceeded) || out[0].Allowed {
					t.Errorf("%+v, %v", out[0], err)
				}
			}
		})
	}
	wg.Wait()
}

// TestDegradedShortDeadlines: callers that allow less time than a healthy store needs are not
// decided locally and do not make the store count as unavailable.
func TestDegradedShortDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &delayed{Store: newOutage(t)}
		store.latency.Store(int64(50 * time.Millisecond))
		s := newDegraded(t, store, &layer.DegradedOptions{Instances: 2,
			OnChange: func(unavailable bool) { t.Errorf("unavailable: %t", unavailable) }})
		hurry(t, s)
		if st := s.Stats(); st.Unavailable || st.Local != 0 || st.Undecided != 0 ||
			st.Pending != 0 {
			t.Errorf("%+v", st)
		}
		if n := store.peeks.Load(); n < 2 || n > 3 {
			t.Errorf("%d peeks in a second", n)
		}
		if n := admit(t, s, "k", driver.SourceStore); n != 8 {
			t.Errorf("%d admitted, want all of 8", n)
		}
	})
}

// TestDegradedFrozenBehindShortDeadlines: the layer detects that the store does not answer although
// all callers give up before the store's own timeout, and that it answers again.
func TestDegradedFrozenBehindShortDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &delayed{Store: newOutage(t)}
		store.latency.Store(int64(time.Hour))
		var changes []bool
		s := newDegraded(t, store, &layer.DegradedOptions{Instances: 2,
			OnChange: func(unavailable bool) { changes = append(changes, unavailable) }})
		hurry(t, s)
		if st := s.Stats(); !st.Unavailable || st.Local != 0 {
			t.Errorf("%+v", st)
		}
		if n := store.peeks.Load(); n < 2 || n > 3 {
			t.Errorf("%d peeks in a second", n)
		}
		if n := admit(t, s, "k", driver.SourceLocal); n != 4 {
			t.Errorf("%d admitted locally for callers with time, want half of 8", n)
		}
		store.latency.Store(0)
		time.Sleep(time.Second)
		if st := s.Stats(); st.Unavailable || st.Pending != 0 {
			t.Errorf("the store is back: %+v", st)
		}
		if len(changes) != 2 || !changes[0] || changes[1] {
			t.Errorf("changes %v", changes)
		}
	})
}

// TestDegradedPeekEndsWithClose: a peek does not outlive the layer.
func TestDegradedPeekEndsWithClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newDegraded(t, endless{}, &layer.DegradedOptions{Instances: 2})
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := s.Take(ctx, driver.Demand{Key: "k", Algorithm: eight,
			N: 1}); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if st := s.Stats(); st.Unavailable {
			t.Error("a peek that Close ended counts")
		}
	})
}

// endless is a store that answers when the context ends.
type endless struct{ driver.Store }

func (endless) Take(ctx context.Context, _ driver.Demand) (driver.Result, error) {
	<-ctx.Done()
	return driver.Result{}, fmt.Errorf("%w: %w", driver.ErrUnavailable, ctx.Err())
}
