package ratelimit_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/driver"
)

// recorder keeps observations. The results are copied, since they are valid during the call only.
type recorder struct {
	mu   sync.Mutex
	seen []ratelimit.Observation
}

func (r *recorder) observe(_ context.Context, o ratelimit.Observation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o.Results = slices.Clone(o.Results)
	r.seen = append(r.seen, o)
}

// TestObservation: each call of a method is observed once, as its caller gets it.
func TestObservation(t *testing.T) {
	for _, limits := range [][]ratelimit.Limit{{ratelimit.PerDay("day", 3)},
		{ratelimit.PerHour("hour", 5), ratelimit.PerDay("day", 3)}} {
		for _, m := range methods {
			var r recorder
			l := newLimiter(t, &mapStore{}, limits...).WithObserver(r.observe)
			n := int64(1)
			if m.usesN {
				n = 2
			}
			if m.op == driver.OpReset {
				n = 0
			}
			if err := m.call(l, t.Context(), "user", n); err != nil {
				t.Fatalf("%s: %v", m.name, err)
			}
			if len(r.seen) != 1 {
				t.Fatalf("%s: %d observations, want 1", m.name, len(r.seen))
			}
			o := r.seen[0]
			if o.Key != "user" || o.Op != m.op || o.N != n || !slices.Equal(o.Limits, limits) ||
				o.Err != nil || !o.Admitted || o.Elapsed <= 0 || o.Waited != 0 {
				t.Errorf("%s: %+v", m.name, o)
			}
			for i, res := range o.Results {
				if !res.Allowed || res.Limit.Max != limits[i].Max {
					t.Errorf("%s: result %d is %+v", m.name, i, res)
				}
			}
		}
	}
}

// TestObservationZeroUnits: AllowN of no units is observed as a peek for one.
func TestObservationZeroUnits(t *testing.T) {
	var r recorder
	l := newLimiter(t, &mapStore{}, ratelimit.PerDay("day", 3)).WithObserver(r.observe)
	if _, err := l.AllowN(t.Context(), "k", 0); err != nil {
		t.Fatal(err)
	}
	if o := r.seen[0]; len(r.seen) != 1 || o.Op != driver.OpPeek || o.N != 1 {
		t.Errorf("%+v", r.seen)
	}
}

// TestObservationErrors: calls that fail are observed with the error that their caller gets and
// zero results.
func TestObservationErrors(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	cause := errors.New("the store's own")
	for _, tt := range []struct {
		name string
		ctx  context.Context
		key  string
		err  error
		want error
	}{
		{"store", t.Context(), "k", cause, cause},
		{"unavailable", t.Context(), "k", ratelimit.ErrUnavailable, ratelimit.ErrUnavailable},
		{"no key", t.Context(), "", nil, ratelimit.ErrInvalid},
		{"ended", ended, "k", nil, context.Canceled},
	} {
		for _, m := range methods {
			var r recorder
			l := newLimiter(t, &mapStore{err: tt.err}, minuteAndHour...).WithObserver(r.observe)
			err := m.call(l, tt.ctx, tt.key, 1)
			wantErr(t, err, tt.want)
			if len(r.seen) != 1 || r.seen[0].Err != err || r.seen[0].Admitted ||
				!slices.Equal(r.seen[0].Results, make([]ratelimit.Result, 2)) {
				t.Errorf("%s, %s: %+v for the error %v", tt.name, m.name, r.seen, err)
			}
		}
	}
}

// TestObservationOpen: a call that the policy admits is observed as admitted.
func TestObservationOpen(t *testing.T) {
	var r recorder
	l := newLimiter(t, failing{err: ratelimit.ErrUnavailable}, minuteAndHour...).
		WithPolicy(ratelimit.FailOpen).WithObserver(r.observe)
	if _, err := l.Allow(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	o := r.seen[0]
	if !o.Admitted || o.Err != nil ||
		o.Results[1] != (ratelimit.Result{
			Allowed: true, Source: ratelimit.SourceOpen, Limit: minuteAndHour[1], Units: 1}) {
		t.Errorf("%+v", o)
	}
}

// TestObservationWait: a wait is one observation with the time that it slept, whether it was
// admitted or given up.
func TestObservationWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		l := newLimiter(t, &mapStore{},
			ratelimit.Limit{Name: "w", Max: 1, Window: 10 * time.Second}).WithObserver(r.observe)
		mustAllow(t, l, 1)
		if _, err := l.Wait(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		refusal, err := l.Wait(ctx, "k")
		wantErr(t, err, context.DeadlineExceeded)
		if len(r.seen) != 3 {
			t.Fatalf("%d observations, want 3", len(r.seen))
		}
		if o := r.seen[1]; o.Op != driver.OpTake || !o.Admitted ||
			o.Waited != 10*time.Second || o.Elapsed != o.Waited {
			t.Errorf("a wait that was admitted: %+v", o)
		}
		if o := r.seen[2]; o.Admitted || o.Err != err || o.Results[0] != refusal ||
			o.Waited != 0 {
			t.Errorf("a wait that was given up: %+v", o)
		}
	})
}

// TestObservationCounts: observers are called by concurrent calls, and count exactly what callers
// got.
func TestObservationCounts(t *testing.T) {
	const goroutines, calls, most = 16, 50, 100
	for _, limits := range [][]ratelimit.Limit{{ratelimit.PerDay("day", most)},
		{ratelimit.PerHour("hour", 10*most), ratelimit.PerDay("day", most)}} {
		var admitted, refused, got atomic.Int64
		l := newLimiter(t, &mapStore{now: newClock().now}, limits...).
			WithObserver(func(_ context.Context, o ratelimit.Observation) {
				if o.Admitted {
					admitted.Add(1)
				} else {
					refused.Add(1)
				}
			})
		var wg sync.WaitGroup
		for range goroutines {
			wg.Go(func() {
				for range calls {
					if res, err := l.Allow(t.Context(), "k"); err == nil && res.Allowed {
						got.Add(1)
					}
				}
			})
		}
		wg.Wait()
		if admitted.Load() != most || got.Load() != most ||
			refused.Load() != goroutines*calls-most {
			t.Errorf("%d limits: observed %d admitted and %d refused, callers got %d",
				len(limits), admitted.Load(), refused.Load(), got.Load())
		}
	}
}
