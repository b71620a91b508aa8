package shadow_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/testkit/limittest"
	"github.com/truewindow/ratelimit/shadow"
)

// recorder keeps observations. The results are copied, since they are valid during the call only.
type recorder struct {
	mu   sync.Mutex
	seen []shadow.Observation
}

func (r *recorder) report(_ context.Context, o shadow.Observation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o.Results = slices.Clone(o.Results)
	r.seen = append(r.seen, o)
}

func noErr(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newStore(t *testing.T) *memorystore.Store {
	t.Helper()
	store, err := memorystore.New(nil)
	noErr(t, err)
	t.Cleanup(func() { noErr(t, store.Close()) })
	return store
}

func newLimiter(
	t *testing.T, store ratelimit.Store, limits ...ratelimit.Limit,
) *ratelimit.Limiter {
	t.Helper()
	var algorithms []ratelimit.Algorithm
	for _, limit := range limits {
		algorithms = append(algorithms, algorithm.SlidingLog(limit))
	}
	l, err := ratelimit.New(store, algorithms...)
	noErr(t, err)
	return l
}

// shadowed returns a limiter of most units a minute, whose takes are repeated on one of 2 a minute.
func shadowed(
	t *testing.T, store ratelimit.Store, most int64, trial ratelimit.Store,
	report func(context.Context, shadow.Observation),
) *ratelimit.Limiter {
	t.Helper()
	live := limittest.NewBudget(t, store, ratelimit.PerMinute("live", most))
	observer, err := shadow.New(live, newLimiter(t, trial, ratelimit.PerMinute("trial", 2)), report)
	noErr(t, err)
	return live.WithObserver(observer)
}

// TestShadow: the trial decides each take of the limiter by its own limit, and nothing else. The
// report gets both results.
func TestShadow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		var r recorder
		l := shadowed(t, store, 5, store, r.report)
		other := newLimiter(t, store, ratelimit.PerMinute("other", 9))
		claim := ratelimit.Claim{Limiter: l, Key: "k", N: 1}
		takes := []func() error{
			func() error { _, err := l.Allow(t.Context(), "k"); return err },
			func() error { _, err := ratelimit.AllowAll(t.Context(), claim); return err },
			func() error { _, err := l.Wait(t.Context(), "k"); return err },
			func() error {
				reservation, err := l.Reserve(t.Context(), "k", 1)
				noErr(t, err)
				return reservation.Commit(t.Context(), 2)
			},
			func() error {
				_, err := ratelimit.AllowAll(t.Context(),
					ratelimit.Claim{Limiter: other, Key: "k", N: 1}, claim)
				return err
			},
		}
		for _, take := range takes {
			noErr(t, take())
			synctest.Wait()
			time.Sleep(time.Millisecond)
		}
		for _, skipped := range []func() error{
			func() error { _, err := l.Peek(t.Context(), "k"); return err },
			func() error { _, err := l.Force(t.Context(), "k", 1); return err },
			func() error { return l.Reset(t.Context(), "k") },
		} {
			noErr(t, skipped())
		}
		synctest.Wait()
		if len(r.seen) != len(takes) {
			t.Fatalf("%d observations: %+v", len(r.seen), r.seen)
		}
		for i, o := range r.seen {
			if o.Key != "k" || o.Op != driver.OpTake || o.N != 1 || o.Limits[0].Name != "trial" ||
				o.Results[0].Limit != o.Limits[0] || o.Err != nil || o.Admitted != (i < 2) {
				t.Errorf("observation %d: %+v", i, o)
			}
			// The reservation was committed with one unit more than it took.
			if len(o.Live) != 1 || o.Live[0].Limit.Name != "live" ||
				o.Live[0].Allowed != (i < 4) {
				t.Errorf("observation %d has the live results %+v", i, o.Live)
			}
		}
	})
}

// TestShadowLeast: of a claim of which a part is enough, the trial takes the part that was granted,
// or the least if none was.
func TestShadowLeast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		l := shadowed(t, newStore(t), 3, newStore(t), r.report)
		for _, least := range []int64{2, 1, 2} {
			_, err := ratelimit.AllowAll(t.Context(),
				ratelimit.Claim{Limiter: l, Key: "k", N: least + 1, Least: least})
			noErr(t, err)
			synctest.Wait()
		}
		var got []int64
		for _, o := range r.seen {
			got = append(got, o.N)
		}
		if !slices.Equal(got, []int64{3, 1, 2}) {
			t.Errorf("the trial was asked for %v units", got)
		}
	})
}

// stuckStore does not answer before the context ends, or a minute has passed.
type stuckStore struct{ ratelimit.Store }

func (stuckStore) Take(ctx context.Context, _ driver.Demand) (ratelimit.Result, error) {
	select {
	case <-ctx.Done():
	case <-time.After(time.Minute):
	}
	return ratelimit.Result{}, ratelimit.ErrUnavailable
}

// TestShadowDelaysNoCall: callers do not wait for the trial. Its calls are bounded in number and
// continue after those of the callers.
func TestShadowDelaysNoCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		l := shadowed(t, newStore(t), 5000, stuckStore{}, r.report)
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		for range 1500 {
			res, err := l.Allow(ctx, "k")
			if err != nil || !res.Allowed {
				t.Fatalf("%+v, %v", res, err)
			}
		}
		cancel()
		if d := time.Since(began); d != 0 {
			t.Errorf("the callers waited for %v", d)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if len(r.seen) != 1000 {
			t.Errorf("%d observations, want 1000", len(r.seen))
		}
		dropped := int64(0)
		for _, o := range r.seen {
			dropped += o.Dropped
		}
		if dropped != 500 {
			t.Errorf("%d calls are reported as dropped, want 500", dropped)
		}
		if o := r.seen[0]; !errors.Is(o.Err, ratelimit.ErrUnavailable) || len(o.Live) != 1 ||
			o.Elapsed != time.Minute {
			t.Errorf("%+v", o)
		}
	})
}

// TestShadowErrors: no argument may be nil, and the trial needs histories of its own.
func TestShadowErrors(t *testing.T) {
	store := newStore(t)
	report := func(context.Context, shadow.Observation) {}
	live := newLimiter(t, store, ratelimit.PerMinute("live", 5), ratelimit.PerHour("hour", 9))
	trial := newLimiter(t, store, ratelimit.PerMinute("trial", 5))
	for name, tt := range map[string]struct {
		live, trial *ratelimit.Limiter
		report      func(context.Context, shadow.Observation)
	}{
		"no limiter": {nil, trial, report},
		"no trial":   {live, nil, report},
		"no report":  {live, trial, nil},
		"the same":   {live, live, report},
		"in flight":  {live, limittest.NewInFlight(t, store, 1), report},
		"one name": {live, newLimiter(t, store, ratelimit.PerHour("trial", 1),
			ratelimit.PerHour("live", 1)), report},
		// Two stores may be one: behind a layer, or as two clients of one server.
		"on another store": {live, newLimiter(t, newStore(t), ratelimit.PerHour("hour", 1)),
			report},
	} {
		observer, err := shadow.New(tt.live, tt.trial, tt.report)
		if !errors.Is(err, ratelimit.ErrInvalid) || observer != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// awayStore answers no call.
type awayStore struct{ ratelimit.Store }

func (awayStore) Take(context.Context, driver.Demand) (ratelimit.Result, error) {
	return ratelimit.Result{}, ratelimit.ErrUnavailable
}

// TestShadowOfReservation: the trial takes what a reservation holds at first, and all of it after
// an extension. Renewals and settlements are not repeated.
func TestShadowOfReservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		var r recorder
		l := shadowed(t, store, 5, store, r.report)
		reservation, err := l.Reserve(t.Context(), "k", 1)
		noErr(t, err)
		time.Sleep(2 * time.Minute)
		_, err = reservation.Extend(t.Context(), 1)
		noErr(t, err)
		noErr(t, reservation.Commit(t.Context(), 1))
		synctest.Wait()
		if len(r.seen) != 2 || r.seen[0].N != 1 || r.seen[1].N != 2 {
			t.Errorf("%d observations: %+v", len(r.seen), r.seen)
		}
	})
}

// TestShadowAfterAnError: if a call of the limiter fails, the trial decides it all the same.
func TestShadowAfterAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		l := shadowed(t, awayStore{}, 5, newStore(t), r.report)
		_, err := l.Allow(t.Context(), "k")
		if !errors.Is(err, ratelimit.ErrUnavailable) {
			t.Error(err)
		}
		synctest.Wait()
		if len(r.seen) != 1 || r.seen[0].Live != nil || !r.seen[0].Admitted {
			t.Errorf("%+v", r.seen)
		}
	})
}

// panicStore panics.
type panicStore struct{ ratelimit.Store }

func (panicStore) Take(context.Context, driver.Demand) (ratelimit.Result, error) {
	panic("store")
}

// TestShadowPanics: a panic of the trial's store or of the report ends neither the process nor a
// call, and the next call can follow. The report gets the panic of the store.
func TestShadowPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		l := shadowed(t, newStore(t), 5000, panicStore{},
			func(ctx context.Context, o shadow.Observation) {
				r.report(ctx, o)
				panic("report")
			})
		const calls = 1001 // one more than may be in flight
		for range calls {
			res, err := l.Allow(t.Context(), "k")
			if err != nil || !res.Allowed {
				t.Fatalf("%+v, %v", res, err)
			}
			synctest.Wait()
		}
		if len(r.seen) != calls {
			t.Fatalf("%d observations, want %d", len(r.seen), calls)
		}
		for _, o := range r.seen {
			var panicked *shadow.PanicError
			if !errors.As(o.Err, &panicked) || panicked.Value != "store" ||
				len(panicked.Stack) == 0 || o.Admitted || !o.Live[0].Allowed ||
				!slices.Equal(o.Results, make([]ratelimit.Result, 1)) {
				t.Fatalf("%+v", o)
			}
		}
	})
}

// TestShadowOfRefusedClaims: the trial does not decide a claim that was refused because of another
// claim. It decides one that its own limiter has refused.
func TestShadowOfRefusedClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		var r recorder
		l := shadowed(t, store, 5, store, r.report)
		other := newLimiter(t, store, ratelimit.PerMinute("other", 5))
		ask := func(n, others int64) {
			t.Helper()
			_, err := ratelimit.AllowAll(t.Context(),
				ratelimit.Claim{Limiter: l, Key: "k", N: n},
				ratelimit.Claim{Limiter: other, Key: "k", N: others})
			noErr(t, err)
			synctest.Wait()
		}
		ask(1, 5)
		ask(1, 1) // refused by the other
		if len(r.seen) != 1 {
			t.Errorf("%d observations: %+v", len(r.seen), r.seen)
		}
		ask(5, 0) // refused by both
		if len(r.seen) != 2 || r.seen[1].Live[0].Allowed {
			t.Errorf("%d observations: %+v", len(r.seen), r.seen)
		}
	})
}
