package ratelimit_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

// shadowed returns a limiter of 5 a minute with a shadow of 2 a minute, and what the shadow's
// observer sees.
func shadowed(t *testing.T, store, other ratelimit.Store) (*ratelimit.Limiter, *recorder) {
	t.Helper()
	seen := new(recorder)
	l, err := newLimiter(t, store, ratelimit.PerMinute("real", 5)).
		WithShadow(newLimiter(t, other, ratelimit.PerMinute("tried", 2)).WithObserver(seen.observe))
	noErr(t, err)
	return l.WithObserver(nil), seen // which keeps the shadow
}

// TestShadow: the shadow decides each take of the limiter by its own limit, and its observer gets
// both results.
func TestShadow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &mapStore{}
		l, seen := shadowed(t, store, store)
		other := newLimiter(t, store, ratelimit.PerMinute("other", 9))
		ask := []func() error{
			func() error { _, err := l.Allow(t.Context(), "k"); return err },
			func() error { _, err := l.AllowEach(t.Context(), "k", 1, nil); return err },
			func() error { _, err := l.Wait(t.Context(), "k"); return err },
			func() error { _, err := l.Reserve(t.Context(), "k", 1); return err },
			func() error {
				_, err := ratelimit.AllowAll(t.Context(),
					ratelimit.Claim{Limiter: other, Key: "k", N: 1},
					ratelimit.Claim{Limiter: l, Key: "k", N: 1})
				return err
			},
			func() error { _, err := l.Allow(t.Context(), "k"); return err },
		}
		for _, f := range ask {
			noErr(t, f())
			synctest.Wait()
			time.Sleep(time.Millisecond)
		}
		_, err := l.Peek(t.Context(), "k")
		noErr(t, err)
		noErr(t, l.Reset(t.Context(), "k"))
		synctest.Wait()
		if len(seen.seen) != len(ask) {
			t.Fatalf("%d observations: %+v", len(seen.seen), seen.seen)
		}
		for i, o := range seen.seen {
			if o.Key != "k" || o.N != 1 || o.Limits[0].Name != "tried" || o.Err != nil ||
				o.Admitted() != (i < 2) || len(o.Shadowed) != 1 ||
				o.Shadowed[0].Allowed != (i < 5) {
				t.Errorf("observation %d: %+v", i, o)
			}
		}
	})
}

// stuckStore does not answer until the context ends.
type stuckStore struct{ ratelimit.Store }

func (stuckStore) Take(ctx context.Context, _ driver.Demand) (ratelimit.Result, error) {
	select {
	case <-ctx.Done():
	case <-time.After(time.Minute):
	}
	return ratelimit.Result{}, ratelimit.ErrUnavailable
}

// TestShadowDelaysNoCall: callers do not wait for the shadow. Its calls are bounded in number and
// continue after those of the callers.
func TestShadowDelaysNoCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := new(recorder)
		l, err := newLimiter(t, &mapStore{}, ratelimit.PerMinute("real", 5000)).
			WithShadow(newLimiter(t, stuckStore{}, ratelimit.PerMinute("tried", 2)).
				WithObserver(seen.observe))
		noErr(t, err)
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
		if len(seen.seen) != 1000 {
			t.Errorf("%d observations, want 1000", len(seen.seen))
		}
		dropped := int64(0)
		for _, o := range seen.seen {
			dropped += o.Dropped
		}
		if dropped != 500 {
			t.Errorf("%d calls are reported as dropped, want 500", dropped)
		}
		wantErr(t, seen.seen[0].Err, ratelimit.ErrUnavailable)
		if o := seen.seen[0]; len(o.Shadowed) != 1 || o.Elapsed != time.Minute {
			t.Errorf("%+v", o)
		}
	})
}

// TestShadowErrors: a shadow must have histories of its own and no shadow itself.
func TestShadowErrors(t *testing.T) {
	store := &mapStore{}
	l, _ := shadowed(t, store, store)
	_, err := l.WithShadow(nil)
	wantErr(t, err, ratelimit.ErrInvalid)
	_, err = newLimiter(t, store, ratelimit.PerHour("hourly", 1)).WithShadow(l)
	wantErr(t, err, ratelimit.ErrInvalid)
	same := newLimiter(t, store, ratelimit.PerHour("real", 1))
	_, err = l.WithShadow(same)
	wantErr(t, err, ratelimit.ErrInvalid)
	// Two stores may be one: behind a layer, or as two clients of one server.
	behind := newLimiter(t, struct{ ratelimit.Store }{store}, ratelimit.PerHour("real", 1))
	_, err = l.WithShadow(behind)
	wantErr(t, err, ratelimit.ErrInvalid)
	second := newLimiter(t, store, ratelimit.PerHour("other", 1), ratelimit.PerHour("real", 9))
	_, err = l.WithShadow(second)
	wantErr(t, err, ratelimit.ErrInvalid)
	bucket, err := ratelimit.New(store, algorithm.TokenBucket(ratelimit.PerMinute("real", 5)))
	noErr(t, err)
	_, err = l.WithShadow(bucket)
	noErr(t, err)
}

// TestShadowAfterAnError: if a call fails, the shadow's observer gets no results of it.
func TestShadowAfterAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, seen := shadowed(t, &mapStore{err: ratelimit.ErrUnavailable}, &mapStore{})
		_, err := l.Allow(t.Context(), "k")
		wantErr(t, err, ratelimit.ErrUnavailable)
		synctest.Wait()
		if o := seen.seen[0]; o.Shadowed != nil || !o.Admitted() {
			t.Errorf("%+v", o)
		}
	})
}

// panicStore panics.
type panicStore struct{ ratelimit.Store }

func (panicStore) Take(context.Context, driver.Demand) (ratelimit.Result, error) {
	panic("store")
}

// TestShadowOfAPanic: when the store of the limiter panics, the slots of the shadow become free
// again.
func TestShadowOfAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, seen := shadowed(t, panicStore{}, &mapStore{})
		for range 1001 {
			func() {
				defer func() { _ = recover() }()
				_, _ = l.Allow(t.Context(), "k")
			}()
			synctest.Wait()
		}
		if len(seen.seen) != 1001 {
			t.Errorf("%d observations, want 1001", len(seen.seen))
		}
	})
}

// TestShadowPanics: a panic of the store or the observer of a shadow ends neither the process nor a
// call, and frees its slot. The observer gets the panic of the store.
func TestShadowPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen recorder
		tried := newLimiter(t, panicStore{}, ratelimit.PerMinute("tried", 2)).WithObserver(
			func(ctx context.Context, o ratelimit.Observation) {
				seen.observe(ctx, o)
				panic("observer")
			})
		l, err := newLimiter(t, &mapStore{}, ratelimit.PerMinute("real", 5000)).WithShadow(tried)
		noErr(t, err)
		const calls = 1001 // one more than may be in flight
		for range calls {
			res, err := l.Allow(t.Context(), "k")
			if err != nil || !res.Allowed {
				t.Fatalf("%+v, %v", res, err)
			}
			synctest.Wait()
		}
		if len(seen.seen) != calls {
			t.Fatalf("%d observations, want %d", len(seen.seen), calls)
		}
		for _, o := range seen.seen {
			var panicked *ratelimit.ShadowPanicError
			if !errors.As(o.Err, &panicked) || panicked.Value != "store" ||
				len(panicked.Stack) == 0 || o.Admitted() || !o.Shadowed[0].Allowed ||
				o.Results[0] != (ratelimit.Result{}) {
				t.Fatalf("%+v", o)
			}
		}
	})
}

// TestShadowOfRefusedClaims: a shadow is not called for a claim that was refused because of another
// claim. It is called for a claim that its own limiter refused.
func TestShadowOfRefusedClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &mapStore{}
		l, seen := shadowed(t, store, store)
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
		if len(seen.seen) != 1 {
			t.Errorf("%d observations: %+v", len(seen.seen), seen.seen)
		}
		ask(5, 0) // refused by both
		if len(seen.seen) != 2 || seen.seen[1].Shadowed[0].Allowed {
			t.Errorf("%d observations: %+v", len(seen.seen), seen.seen)
		}
	})
}
