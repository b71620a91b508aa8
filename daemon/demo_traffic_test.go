package daemon

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
)

// record makes a run on a memory store whose clock is ahead of this process's. It belongs into a
// bubble, where it takes no time.
func record(t *testing.T, limit ratelimit.Limit, ahead time.Duration) *recording {
	t.Helper()
	store, err := memorystore.New(&memorystore.Options{Now: func() int64 {
		return time.Now().
			Add(ahead).UnixMicro()
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	limiter, err := ratelimit.New(store, algorithm.SlidingLog(named(limit)))
	if err != nil {
		t.Fatal(err)
	}
	traffic, err := newTraffic(t.Context(), limit, limiter)
	if err != nil {
		t.Fatal(err)
	}
	if err := traffic.run(t.Context(), func() {}); err != nil {
		t.Fatal(err)
	}
	if n := store.Stats().Keys; n != 0 {
		t.Errorf("the run left %d states behind", n)
	}
	return &traffic.recording
}

func TestTraffic(t *testing.T) {
	for _, limit := range []ratelimit.Limit{{Max: 20, Window: 2 * time.Second},
		{Max: 1, Window: time.Minute}, {Max: 1000, Window: 333333 * time.Microsecond}} {
		for _, ahead := range []time.Duration{0, time.Hour, -time.Hour} {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(rand.N(limit.Window)) // a run may begin at any time
				checkTraffic(t, record(t, limit, ahead))
			})
		}
	}
}

func checkTraffic(t *testing.T, r *recording) {
	t.Helper()
	units, window := int(r.limit.Max), r.limit.Window.Microseconds()
	if got := r.fixed.most(r.limit.Window); got != 2*units {
		t.Errorf("%v: the fixed window admitted %d in a window", r.limit, got)
	}
	if got := r.exact.most(r.limit.Window); got != units {
		t.Errorf("%v: the exact log admitted %d in a window", r.limit, got)
	}
	if err := r.check(); err != nil {
		t.Error(err)
	}
	for i, wantExact := range []int{units, 0, units, units, 0, units} {
		offered, fixed := r.fixed.ofBurst(i)
		offeredExact, exact := r.exact.ofBurst(i)
		if offered != r.burst || offeredExact != r.burst || offered <= units || fixed != units ||
			exact != wantExact {
			t.Errorf("%v, burst %d: %d of %d and %d of %d",
				r.limit, i, fixed, offered, exact, offeredExact)
		}
	}
	for _, edge := range r.edges() {
		if edge%window != 0 || edge < r.start || edge >= r.start+demoWindows*window {
			t.Errorf("%v: %d is no edge of the run", r.limit, edge)
		}
	}
	for _, s := range r.both() {
		if !slices.IsSorted(s.admitted) {
			t.Errorf("%v: the admissions of the %s are out of order", r.limit, s.name)
		}
		for _, a := range s.attempts {
			// the instants are cut to µs
			if late := a.at - r.burstAt(a.burst); late < 0 || late > 1 {
				t.Fatalf("%v, burst %d: the %s got it %dµs late", r.limit, a.burst, s.name, late)
			}
		}
	}
}

// failing is a store that decides so many demands and no more.
type failing struct {
	ratelimit.Store
	left, failed atomic.Int64
}

func (f *failing) Take(ctx context.Context, d ratelimit.Demand) (ratelimit.Result, error) {
	if d.Op == ratelimit.OpTake && f.left.Add(-1) < 0 {
		f.failed.Add(1)
		return ratelimit.Result{}, ratelimit.ErrUnavailable
	}
	return f.Store.Take(ctx, d)
}

func TestTrafficWithoutStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, err := memorystore.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		failing := &failing{Store: store}
		failing.left.Store(130)
		limit := ratelimit.Limit{Max: 100, Window: time.Second}
		limiter, err := ratelimit.New(failing, algorithm.SlidingLog(named(limit)))
		if err != nil {
			t.Fatal(err)
		}
		traffic, err := newTraffic(t.Context(), limit, limiter)
		if err != nil {
			t.Fatal(err)
		}
		if err := traffic.run(t.Context(), func() {}); !errors.Is(err, ratelimit.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
		if got := len(traffic.exact.attempts); got != 130 {
			t.Errorf("%d attempts are recorded", got)
		}
		if got := failing.failed.Load(); got < 1 || got > demoWorkers {
			t.Errorf("the store was asked %d times after it had failed", got)
		}
		if want := traffic.burstAt(1); traffic.until < want || traffic.until > want+1 {
			t.Errorf("it ended at %d, want %d", traffic.until, want)
		}
	})
}

// TestMost compares with a count of every window.
func TestMost(t *testing.T) {
	if got := new(series).most(time.Second); got != 0 {
		t.Errorf("%d without an admission", got)
	}
	for range 200 {
		var s series
		for range 1 + rand.IntN(30) {
			s.add(attempt{at: rand.Int64N(100), admitted: rand.IntN(4) > 0})
		}
		window := 1 + rand.Int64N(40)
		from, to := rand.Int64N(100), rand.Int64N(100)
		from, to = min(from, to), max(from, to)+1
		most, mostIn := 0, 0
		for end := range int64(100) {
			n := 0
			for _, a := range s.attempts {
				if a.admitted && end-window < a.at && a.at <= end {
					n++
				}
			}
			most = max(most, n)
			if from <= end && end < to {
				mostIn = max(mostIn, n)
			}
		}
		w := time.Duration(window) * time.Microsecond
		if got := s.most(w); got != most {
			t.Errorf("most %d, want %d: %v, window %d", got, most, s.admitted, window)
		}
		if got := s.mostIn(from, to, w); got != mostIn {
			t.Errorf("most in [%d, %d) %d, want %d: %v, window %d",
				from, to, got, mostIn, s.admitted, window)
		}
	}
}

func TestCheckExact(t *testing.T) {
	r := &recording{limit: ratelimit.PerSecond("second", 2)}
	for _, at := range []int64{0, 999_999, 1_000_000} {
		r.exact.add(attempt{at: at, admitted: true})
		if err := r.check(); err != nil {
			t.Errorf("after %d: %v", at, err)
		}
	}
	r.exact.add(attempt{at: 1_999_998, admitted: true})
	if err := r.check(); err == nil ||
		!strings.Contains(err.Error(), "admitted 3 units within 1s") {
		t.Errorf("three in a window: %v", err)
	}
}
