package layer_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/layer"
)

// TestLeasedFails: what the store inside fails to answer is lost, and nothing else: a panic in the
// background ends no program, and later calls are decided.
func TestLeasedFails(t *testing.T) {
	for name, answer := range map[string]func(driver.Demand) (driver.Result, error){
		"unavailable": func(driver.Demand) (driver.Result, error) {
			return driver.Result{}, driver.ErrUnavailable
		},
		"unknown": func(driver.Demand) (driver.Result, error) {
			return driver.Result{}, driver.ErrOutcomeUnknown
		},
		"panic": func(driver.Demand) (driver.Result, error) { panic("planted") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := &demands{Store: newOutage(t)}
				s, d := newLeased(t, inner, nil), of("k", manyAMinute, 1)
				warm(t, s, d)
				inner.answers(answer)
				failed := 0
				for range 3000 {
					time.Sleep(time.Millisecond)
					func() {
						defer func() {
							if recover() != nil {
								failed++
							}
						}()
						if _, err := s.Take(t.Context(), d); err != nil {
							failed++
						}
					}()
					synctest.Wait()
				}
				if failed < 2000 {
					t.Errorf("%d calls failed, want all after a lead", failed)
				}
				inner.answers(nil)
				time.Sleep(2 * time.Minute)
				warm(t, s, d)
			})
		})
	}
}

// TestLeasedIsNoAnswer: a decision from leases says nothing about the store inside.
func TestLeasedIsNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newOutage(t)
		s, d := newLeased(t, inner, nil), of("k", manyAMinute, 1)
		outside, err := layer.NewBreaker(s, &layer.BreakerOptions{Failures: 2})
		if err != nil {
			t.Fatal(err)
		}
		share := newDegraded(t, s, &layer.DegradedOptions{Instances: 2})
		warm(t, s, d)
		inner.mode.Store(gone)
		for i := range 2 {
			if _, err := outside.Take(t.Context(), unit("cold")); err == nil {
				t.Fatal("the store is not gone")
			}
			take(t, share, unit("cold"))
			for _, store := range []driver.Store{outside, share} {
				if res, err := store.Take(t.Context(), d); i == 0 &&
					(err != nil || res.Source != driver.SourceLease) {
					t.Fatalf("%+v, %v", res, err)
				}
			}
		}
		if outside.Stats().State != layer.BreakerOpen || !share.Stats().Unavailable {
			t.Errorf("the breaker is %v, and the store unavailable: %v", outside.Stats().State,
				share.Stats().Unavailable)
		}
	})
}

// TestLeasedInOutage: with a Degraded outside, leases serve for a lead, and then each process has
// its share, in which what leases have admitted counts.
func TestLeasedInOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newOutage(t)
		s, d := newLeased(t, inner, nil), of("k", manyAMinute, 1)
		share := newDegraded(t, s, &layer.DegradedOptions{Instances: 2})
		for range 20_000 {
			time.Sleep(time.Millisecond)
			take(t, share, d)
			synctest.Wait()
		}
		inner.mode.Store(gone)
		began, last := time.Now(), time.Duration(0)
		admitted := 20_000
		for {
			time.Sleep(time.Millisecond)
			res := take(t, share, d)
			if !res.Allowed {
				break
			}
			admitted++
			if res.Source == driver.SourceLease {
				last = time.Since(began)
			}
		}
		if last == 0 || last > 480*time.Millisecond {
			t.Errorf("leases served for %v, want at most 0.8 of a lead", last)
		}
		if admitted > 30_000+600 || admitted < 30_000-600 {
			t.Errorf("%d are admitted, want half of the limit", admitted)
		}
	})
}

// TestLeasedCachedInside: a refusal that the store inside repeats from its cache is not remembered
// again.
func TestLeasedCachedInside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &demands{Store: newOutage(t)}
		s, d := newLeased(t, inner, nil), of("k", manyAMinute, 1)
		warm(t, s, d)
		time.Sleep(time.Second)
		inner.reached()
		inner.answers(func(d driver.Demand) (driver.Result, error) {
			return driver.Result{Source: driver.SourceCache, Limit: d.Algorithm.Limit(),
				RetryAfter: time.Second, ResetAfter: time.Second}, nil
		})
		for range 5 {
			if res := take(t, s, d); res.Allowed || res.Source != driver.SourceCache {
				t.Errorf("%+v", res)
			}
		}
		if got := len(inner.reached()); got != 5 {
			t.Errorf("the store inside was asked %d times", got)
		}
	})
}

// TestLeasedShareInside: units that a degraded store inside admits from its share, ahead of a use
// that never comes, are no more than Loss of the use, and count as lost.
func TestLeasedShareInside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newOutage(t)
		share := newDegraded(t, inner, &layer.DegradedOptions{Instances: 2})
		s, d := newLeased(t, share, nil), of("k", roomy, 1)
		for range 30_000 {
			time.Sleep(time.Millisecond)
			take(t, s, d)
			synctest.Wait()
		}
		before := s.Stats()
		inner.mode.Store(gone)
		for i := range 18_000 { // with these, 48,000 units are used of a share of 50,000
			time.Sleep(time.Millisecond)
			if res, err := s.Take(t.Context(), d); err != nil || !res.Allowed {
				t.Fatalf("take %d without the server: %+v, %v; %+v", i, res, err, s.Stats())
			}
			synctest.Wait()
		}
		after := s.Stats()
		if lost := after.Lost - before.Lost; lost == 0 || lost > 1000 {
			t.Errorf("%d units are lost", lost)
		}
	})
}
