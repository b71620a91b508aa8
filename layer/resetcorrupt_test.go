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
	"github.com/truewindow/ratelimit/layer"
)

func TestResetCorruptConformance(t *testing.T) {
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
	}})
}

// spoiling is an algorithm whose Force leaves a state that none of its steps wrote.
type spoiling struct{ ratelimit.Algorithm }

func (s spoiling) Step([]byte, int64, ratelimit.Demand) ([]byte, time.Duration, ratelimit.Result) {
	return []byte("?"), time.Hour, ratelimit.Result{Allowed: true}
}

func spoilState(t *testing.T, s ratelimit.Store, d ratelimit.Demand) {
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
	three := algorithm.SlidingLog(ratelimit.PerDay("day", 3))
	for i, op := range []ratelimit.Op{ratelimit.OpTake, ratelimit.OpPeek, ratelimit.OpForce,
		ratelimit.OpGiveBack} {
		d := ratelimit.Demand{Key: op.String(), Algorithm: three, Op: op, N: 1}
		spoilState(t, m, d)
		if _, err := m.Take(t.Context(), d); !errors.Is(err, ratelimit.ErrCorruptState) {
			t.Fatalf("%v: the state is not corrupt: %v", op, err)
		}
		want := int64(3)
		if op == ratelimit.OpTake || op == ratelimit.OpForce {
			want = 2
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
	ds := make([]ratelimit.Demand, 4)
	for i := range ds {
		ds[i] = ratelimit.Demand{Key: string(rune('a' + i)),
			Algorithm: algorithm.SlidingLog(ratelimit.PerDay("day", 3)), N: 1}
		if _, err := m.Take(t.Context(), ds[i]); err != nil {
			t.Fatal(err)
		}
	}
	spoilState(t, m, ds[1])
	spoilState(t, m, ds[3])
	out := make([]ratelimit.Result, len(ds))
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
		d := ratelimit.Demand{Key: "k",
			Algorithm: algorithm.SlidingLog(ratelimit.PerDay("day", limit)), N: 1}
		spoilState(t, m, d)
		var wg sync.WaitGroup
		var admitted atomic.Int64
		for i := range callers {
			wg.Go(func() {
				out := make([]ratelimit.Result, 1)
				var err error
				if i%2 == 0 {
					out[0], err = s.Take(t.Context(), d)
				} else {
					err = s.TakeAll(t.Context(), []ratelimit.Demand{d}, out)
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

func (s *stubborn) Take(_ context.Context, d ratelimit.Demand) (ratelimit.Result, error) {
	s.calls.Add(1)
	if d.Op == ratelimit.OpReset {
		return ratelimit.Result{}, s.resetErr
	}
	return ratelimit.Result{}, ratelimit.ErrCorruptState
}

func (s *stubborn) TakeAll(_ context.Context, ds []ratelimit.Demand, out []ratelimit.Result) error {
	s.calls.Add(1)
	return ratelimit.ErrCorruptState
}

// TestResetCorruptInVain checks that a demand on a state that stays corrupt fails after one more
// attempt.
func TestResetCorruptInVain(t *testing.T) {
	for _, resetErr := range []error{nil, ratelimit.ErrOutcomeUnknown} {
		inside := &stubborn{resetErr: resetErr}
		s := layer.NewResetCorrupt(inside)
		l, err := ratelimit.New(s, algorithm.SlidingLog(ratelimit.PerDay("day", 3)))
		if err != nil {
			t.Fatal(err)
		}
		if res, err := l.With(ratelimit.FailOpen).Allow(t.Context(), "k"); res.Allowed ||
			!errors.Is(err, ratelimit.ErrCorruptState) {
			t.Errorf("%+v, %v", res, err)
		}
		if n := inside.calls.Load(); n > 4 {
			t.Errorf("%d calls", n)
		}
		ds := []ratelimit.Demand{{Key: "k",
			Algorithm: algorithm.SlidingLog(ratelimit.PerDay("day", 3)), N: 1}}
		out := make([]ratelimit.Result, 1)
		if err := s.TakeAll(t.Context(), ds, out); out[0].Allowed ||
			!errors.Is(err, ratelimit.ErrCorruptState) {
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

func (s *waiting) Take(ctx context.Context, d ratelimit.Demand) (ratelimit.Result, error) {
	if d.Op == ratelimit.OpReset {
		close(s.resetting)
		<-ctx.Done()
		return ratelimit.Result{}, ratelimit.ErrUnavailable
	}
	return s.stubborn.Take(ctx, d)
}

// TestResetCorruptLeaves checks that a call that waits for the reset of another returns when its
// context ends.
func TestResetCorruptLeaves(t *testing.T) {
	inside := &waiting{resetting: make(chan struct{})}
	s := layer.NewResetCorrupt(inside)
	d := ratelimit.Demand{Key: "k",
		Algorithm: algorithm.SlidingLog(ratelimit.PerDay("day", 3)), N: 1}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = s.Take(ctx, d) })
	<-inside.resetting
	for range 2 {
		soon, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
		if _, err := s.Take(soon, d); !errors.Is(err, ratelimit.ErrCorruptState) {
			t.Error(err)
		}
		if err := s.TakeAll(soon, []ratelimit.Demand{d},
			make([]ratelimit.Result, 1)); !errors.Is(err, ratelimit.ErrCorruptState) {
			t.Error(err)
		}
		stop()
	}
	cancel()
	wg.Wait()
}
