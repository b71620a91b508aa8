package layer_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/layer"
)

// TestDegradedLeast: in an outage a part is what is free of the share. The units of a part that the
// store or the share has granted count, and no others: locally, and in the store when it is back.
func TestDegradedLeast(t *testing.T) {
	type ask func(t *testing.T, l *ratelimit.Limiter, n, least int64) (int64, func() error)
	for _, tt := range []struct {
		name string
		ask  ask
	}{
		{"take", func(t *testing.T, l *ratelimit.Limiter, n, least int64) (int64, func() error) {
			results, err := ratelimit.AllowAll(t.Context(),
				ratelimit.Claim{Limiter: l, Key: "k", N: n, Least: least})
			if err != nil {
				t.Fatal(err)
			}
			return results[0].Units, func() error { return nil }
		}},
		{"settle", func(t *testing.T, l *ratelimit.Limiter, n, least int64) (int64, func() error) {
			r, err := ratelimit.ReserveAll(t.Context(),
				ratelimit.Claim{Limiter: l, Key: "k", N: n, Least: least})
			if err != nil {
				t.Fatal(err)
			}
			if !r.Allowed() {
				return 0, func() error { return nil }
			}
			return r.Claims()[0].N, func() error { return r.Commit(t.Context()) }
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newOutage(t)
				s := newDegraded(t, store, &layer.DegradedOptions{Instances: 4})
				tokens := newTokens(t, s, driver.PerMinute("tokens", 100))
				want := func(n, least, want int64) func() error {
					t.Helper()
					got, settle := tt.ask(t, tokens, n, least)
					if got != want {
						t.Errorf("%d of %d units, at least %d; want %d", got, n, least, want)
					}
					return settle
				}
				first := want(10, 1, 10)
				store.mode.Store(gone)
				second := want(driver.MaxUnits, 16, 0)
				third := want(40, 10, 15)
				fourth := want(40, 1, 0)
				time.Sleep(time.Second)
				for _, settle := range []func() error{first, second, third, fourth} {
					if err := settle(); err != nil {
						t.Error(err)
					}
				}
				store.mode.Store(up)
				time.Sleep(2 * time.Second)
				if got := charged(t, store); got != 25 {
					t.Errorf("%d units are charged in the store, want 25", got)
				}
				want(200, 1, 75)
			})
		})
	}
}

// TestDegradedLeastBeside: a part beside a block and another limit.
func TestDegradedLeastBeside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newOutage(t)
		s := newDegraded(t, store, &layer.DegradedOptions{Instances: 4})
		l, err := ratelimit.New(s, algorithm.SlidingLog(driver.PerMinute("tokens", 100)),
			algorithm.FixedWindow(driver.PerDay("daily", 60)),
			algorithm.Blocking("block", time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		store.mode.Store(gone)
		for _, want := range []int64{15, 0} {
			results, err := ratelimit.AllowAll(t.Context(),
				ratelimit.Claim{Limiter: l, Key: "k", N: 500, Least: 1})
			if err != nil || results[0].Units != want || results[1].Units != want ||
				results[2].Units != want {
				t.Errorf("%+v, %v; want %d units", results, err, want)
			}
		}
		store.mode.Store(up)
		time.Sleep(2 * time.Second)
		results, err := ratelimit.PeekAll(t.Context(), ratelimit.Claim{Limiter: l, Key: "k", N: 1})
		if err != nil || results[0].Remaining != 85 || results[1].Remaining != 45 {
			t.Errorf("%+v, %v; want 15 units charged", results, err)
		}
	})
}
