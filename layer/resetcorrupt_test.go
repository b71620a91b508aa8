package layer_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/conformance"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/layer"
)

func TestResetCorruptConformance(t *testing.T) {
	t.Parallel() // some cases wait
	conformance.Run(t, func(t testing.TB, now func() int64) conformance.Harness {
		m, err := memorystore.New(&memorystore.Options{Now: now})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		return conformance.Harness{Store: layer.NewResetCorrupt(m), Close: m.Close}
	}, &conformance.Options{Except: map[string]string{
		"errors/corrupt-state":  "a corrupt state is reset",
		"takeall/corrupt-state": "a corrupt state is reset",
		"hold/corrupt":          "a corrupt state is reset",
	}})
}

// spoiling is an algorithm whose Force leaves a state that none of its steps wrote.
type spoiling struct{ driver.Algorithm }

func (s spoiling) Step([]byte, int64, driver.Demand) ([]byte, time.Duration, driver.Result) {
	return []byte("?"), time.Hour, driver.Result{Allowed: true}
}

func spoilState(t *testing.T, s driver.Store, d driver.Demand) {
	t.Helper()
	d.Algorithm = spoiling{d.Algorithm}
	if _, err := s.Take(t.Context(), d); err != nil {
		t.Fatal(err)
	}
}

func TestResetCorrupt(t *testing.T) {
	m, err := memorystore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	s := layer.NewResetCorrupt(m)
	three := algorithm.SlidingLog(driver.PerDay("day", 3))
	for i, op := range []driver.Op{driver.OpTake, driver.OpPeek, driver.OpForce} {
		d := driver.Demand{Key: op.String(), Algorithm: three, Op: op, N: 1}
		spoilState(t, m, d)
		if _, err := m.Take(t.Context(), d); !errors.Is(err, driver.ErrCorruptState) {
			t.Fatalf("%v: the state is not corrupt: %v", op, err)
		}
		want := int64(2)
		if op == driver.OpPeek {
			want = 3
		}
		if res, err := s.Take(t.Context(), d); err != nil || !res.Allowed || res.Remaining != want {
			t.Errorf("%v: %+v, %v", op, res, err)
		}
		if got := s.Resets(); got != int64(i+1) {
			t.Errorf("%v: %d resets, want %d", op, got, i+1)
		}
	}
}

func TestResetCorruptTakeAll(t *testing.T) {
	m, err := memorystore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	s := layer.NewResetCorrupt(m)
	ds := make([]driver.Demand, 4)
	for i := range ds {
		ds[i] = driver.Demand{Key: string(rune('a' + i)),
			Algorithm: algorithm.SlidingLog(driver.PerDay("day", 3)), N: 1}
		if _, err := m.Take(t.Context(), ds[i]); err != nil {
			t.Fatal(err)
		}
	}
	spoilState(t, m, ds[1])
	spoilState(t, m, ds[3])
	out := make([]driver.Result, len(ds))
	if err := s.TakeAll(t.Context(), ds, out); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int64{1, 2, 1, 2} { // only what was corrupt is forgotten
		if !out[i].Allowed || out[i].Remaining != want {
			t.Errorf("%s: %+v, want %d remaining", ds[i].Key, out[i], want)
		}
	}
	if got := s.Resets(); got != 2 {
		t.Errorf("%d resets, want 2", got)
	}
}

// TestResetCorruptTogether has many callers find the same state corrupt. Together they are admitted
// up to the limit.
func TestResetCorruptTogether(t *testing.T) {
	const limit, callers = 5, 32
	for range 50 {
		m, err := memorystore.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		s := layer.NewResetCorrupt(m)
		d := driver.Demand{Key: "k",
			Algorithm: algorithm.SlidingLog(driver.PerDay("day", limit)), N: 1}
		spoilState(t, m, d)
		var wg sync.WaitGroup
		var admitted atomic.Int64
		for i := range callers {
			wg.Go(func() {
				out := make([]driver.Result, 1)
				var err error
				if i%2 == 0 {
					out[0], err = s.Take(t.Context(), d)
				} else {
					err = s.TakeAll(t.Context(), []driver.Demand{d}, out)
				}
				if err != nil {
					t.Error(err)
				}
				if out[0].Allowed {
					admitted.Add(1)
				}
			})
		}
		wg.Wait()
		if admitted.Load() != limit || s.Resets() != 1 {
			t.Fatalf("%d admitted after %d resets, want %d after one",
				admitted.Load(), s.Resets(), limit)
		}
		m.Close()
	}
}

// stubborn is a store whose states are corrupt for ever, and that does not reset them.
type stubborn struct {
	calls    atomic.Int64
	resetErr error
}

func (s *stubborn) Take(_ context.Context, d driver.Demand) (driver.Result, error) {
	s.calls.Add(1)
	if d.Op == driver.OpReset {
		return driver.Result{}, s.resetErr
	}
	return driver.Result{}, driver.ErrCorruptState
}

func (s *stubborn) TakeAll(_ context.Context, ds []driver.Demand, out []driver.Result) error {
	s.calls.Add(1)
	return driver.ErrCorruptState
}

// TestResetCorruptInVain checks that a demand on a state that stays corrupt fails after one more
// attempt.
func TestResetCorruptInVain(t *testing.T) {
	for _, resetErr := range []error{nil, driver.ErrOutcomeUnknown} {
		inside := &stubborn{resetErr: resetErr}
		s := layer.NewResetCorrupt(inside)
		l, err := ratelimit.New(s, algorithm.SlidingLog(driver.PerDay("day", 3)))
		if err != nil {
			t.Fatal(err)
		}
		if res, err := l.WithPolicy(ratelimit.FailOpen).Allow(t.Context(), "k"); res.Allowed ||
			!errors.Is(err, driver.ErrCorruptState) {
			t.Errorf("%+v, %v", res, err)
		}
		if n := inside.calls.Load(); n > 4 {
			t.Errorf("%d calls", n)
		}
		ds := []driver.Demand{{Key: "k",
			Algorithm: algorithm.SlidingLog(driver.PerDay("day", 3)), N: 1}}
		out := make([]driver.Result, 1)
		if err := s.TakeAll(t.Context(), ds, out); out[0].Allowed ||
			!errors.Is(err, driver.ErrCorruptState) {
			t.Errorf("%+v, %v", out[0], err)
		}
		if n := inside.calls.Load(); n > 9 {
			t.Errorf("%d calls", n)
		}
	}
}

// waiting is a store on which a state is being reset for ever.
type waiting struct {
	stubborn
	resetting chan struct{}
}

func (s *waiting) Take(ctx context.Context, d driver.Demand) (driver.Result, error) {
	if d.Op == driver.OpReset {
		close(s.resetting)
		<-ctx.Done()
		return driver.Result{}, driver.ErrUnavailable
	}
	return s.stubborn.Take(ctx, d)
}

// TestResetCorruptLeaves checks that a call that waits for the reset of another returns when its
// context ends.
func TestResetCorruptLeaves(t *testing.T) {
	inside := &waiting{resetting: make(chan struct{})}
	s := layer.NewResetCorrupt(inside)
	d := driver.Demand{Key: "k",
		Algorithm: algorithm.SlidingLog(driver.PerDay("day", 3)), N: 1}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = s.Take(ctx, d) })
	<-inside.resetting
	for range 2 {
		soon, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
		if _, err := s.Take(soon, d); !errors.Is(err, driver.ErrCorruptState) {
			t.Error(err)
		}
		if err := s.TakeAll(soon, []driver.Demand{d},
			make([]driver.Result, 1)); !errors.Is(err, driver.ErrCorruptState) {
			t.Error(err)
		}
		stop()
	}
	cancel()
	wg.Wait()
}
