package layer_test

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
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
	"github.com/truewindow/ratelimit/layer"
)

// TestLeasedReset: a Reset drops the leases of the process and what it remembers as refused.
func TestLeasedReset(t *testing.T) {
	for name, reset := range map[string]func(driver.Store, driver.Demand) error{
		"Take": func(s driver.Store, d driver.Demand) error {
			_, err := s.Take(context.Background(), d)
			return err
		},
		"TakeAll": func(s driver.Store, d driver.Demand) error {
			return s.TakeAll(context.Background(), []driver.Demand{of("other", manyAMinute, 1), d},
				make([]driver.Result, 2))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, d := newLeased(t, newOutage(t), nil), of("k", manyAMinute, 1)
				warm(t, s, d)
				all := d
				all.N, all.Least = 60_000, 1
				take(t, s, all)
				for take(t, s, d).Allowed {
				}
				synctest.Wait() // else units on their way may be recorded after the Reset
				d.Op = driver.OpReset
				if err := reset(s, d); err != nil {
					t.Fatal(err)
				}
				d.Op, d.N = driver.OpTake, 60_000
				if res := take(t, s, d); !res.Allowed || res.Source != driver.SourceStore {
					t.Errorf("after a Reset: %+v", res)
				}
				d.N = 1
				if res := take(t, s, d); res.Allowed {
					t.Errorf("60,001 units: %+v", res)
				}
			})
		})
	}
}

// TestLeasedResetBeside: what is taken ahead while the key is reset is not used afterwards, since
// the store may have deleted it.
func TestLeasedResetBeside(t *testing.T) {
	const answers = 100 * time.Millisecond
	for name, slow := range map[string]func(driver.Store, driver.Demand) (driver.Result, error){
		"a chunk is answered late": func(s driver.Store, d driver.Demand) (driver.Result, error) {
			res, err := s.Take(context.Background(), d)
			if d.Least > 0 {
				time.Sleep(answers)
			}
			return res, err
		},
		"the reset arrives late": func(s driver.Store, d driver.Demand) (driver.Result, error) {
			if d.Op == driver.OpReset {
				time.Sleep(answers)
			}
			return s.Take(context.Background(), d)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				outage := newOutage(t)
				inner := &demands{Store: outage}
				s, d := newLeased(t, inner, nil), of("k", manyAMinute, 1)
				for range 30_000 {
					time.Sleep(time.Millisecond)
					take(t, s, d)
					synctest.Wait()
				}
				inner.answers(func(d driver.Demand) (driver.Result, error) {
					return slow(outage, d)
				})
				inner.reached()
				resets := d
				resets.Op = driver.OpReset
				var reset sync.WaitGroup
				late := name == "the reset arrives late"
				if late {
					reset.Go(func() { take(t, s, resets) })
				}
				for range 900 {
					time.Sleep(100 * time.Microsecond)
					go func() { take(t, s, d) }()
					synctest.Wait()
					if !late && slices.ContainsFunc(inner.reached(), func(d driver.Demand) bool {
						return d.Least > 0
					}) {
						take(t, s, resets)
						break
					}
				}
				reset.Wait()
				time.Sleep(answers + time.Millisecond)
				synctest.Wait()
				all := d
				all.N = 60_000
				inner.answers(nil)
				take(t, outage, resets)
				if res := take(t, s, all); !res.Allowed {
					t.Errorf("after a Reset: %+v", res)
				}
				if res := take(t, s, d); res.Allowed {
					t.Errorf("60,001 units: %+v", res)
				}
			})
		})
	}
}

// TestLeasedEnds: after a lead, what was taken ahead is not used any more.
func TestLeasedEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &demands{Store: newOutage(t)}
		s, d := newLeased(t, inner, nil), of("k", manyAMinute, 1)
		for i := range depth.Of(60, 400) {
			warm(t, s, d)
			for range i % 40 {
				take(t, s, d)
				synctest.Wait()
			}
			time.Sleep(480 * time.Millisecond)
			inner.reached()
			if res := take(t, s, d); res.Allowed && len(inner.reached()) == 0 {
				t.Fatalf("%+v", res)
			}
		}
	})
}

// TestLeasedClocks: a lease ends when either clock says so: the monotonic clock may have stood
// still, and the wall clock may have been set back.
func TestLeasedClocks(t *testing.T) {
	for name, wrong := range map[string]func(monotonic, wall int64) (int64, int64){
		"monotonic": func(_, wall int64) (int64, int64) { return 0, wall },
		"wall":      func(monotonic, _ int64) (int64, int64) { return monotonic, 0 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, d := newLeased(t, newOutage(t), nil), of("k", manyAMinute, 1)
				start, right := time.Now(), true
				var since time.Duration
				s.SetClock(func() (int64, int64) {
					passed := time.Since(start)
					if right {
						return int64(passed), int64(passed)
					}
					monotonic, wall := wrong(int64(passed-since), int64(passed-since))
					return int64(since) + monotonic, int64(since) + wall
				})
				warm(t, s, d)
				right, since = false, time.Since(start)
				time.Sleep(480 * time.Millisecond)
				if units, _ := s.LeaseOf("k", manyAMinute); units > 0 {
					t.Errorf("%d units are left after a lead", units)
				}
			})
		})
	}
}

// TestLeasedClose: after Close the store inside decides everything.
func TestLeasedClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &demands{Store: newOutage(t)}
		s, d := newLeased(t, inner, nil), of("k", manyAMinute, 1)
		warm(t, s, d)
		if err := errors.Join(s.Close(), s.Close()); err != nil {
			t.Error(err)
		}
		inner.reached()
		for range 100 {
			if res := take(t, s, d); res.Source != driver.SourceStore {
				t.Fatalf("%+v", res)
			}
		}
		if got := inner.reached(); len(got) != 100 || s.Stats().Keys != 0 {
			t.Errorf("%d calls: %+v", len(got), s.Stats())
		}
	})
}

// TestLeasedSettle: when a process settles a hold, the units are free for its next demand, though
// it was refused just before; and one that waits for them goes on at once.
func TestLeasedSettle(t *testing.T) {
	budget := algorithm.Budget(algorithm.SlidingLog(driver.PerMinute("budget", 60_000)))
	for name, settle := range map[string]func(t *testing.T, s driver.Store, d driver.Demand){
		"Take": func(t *testing.T, s driver.Store, d driver.Demand) { take(t, s, d) },
		"TakeAll": func(t *testing.T, s driver.Store, d driver.Demand) {
			ds := []driver.Demand{of("other", manyAMinute, 1), d}
			if err := s.TakeAll(t.Context(), ds, make([]driver.Result, 2)); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, d := newLeased(t, newOutage(t), nil), of("k", budget, 1)
				for range 20 {
					take(t, s, d)
				}
				hold := of("k", budget, 59_980)
				hold.Op, hold.ID = driver.OpHold, 1
				if res := take(t, s, hold); !res.Allowed {
					t.Fatalf("%+v", res)
				}
				if res := take(t, s, d); res.Allowed {
					t.Fatalf("%+v", res)
				}
				hold.Op, hold.N = driver.OpSettle, 0
				settle(t, s, hold)
				if res := take(t, s, d); !res.Allowed {
					t.Errorf("after the hold has ended: %+v", res)
				}
			})
		})
	}
	t.Run("Wait", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			limiter, err := ratelimit.New(newLeased(t, newOutage(t), nil), budget)
			if err != nil {
				t.Fatal(err)
			}
			for range 20 {
				if _, err := limiter.Allow(t.Context(), "k"); err != nil {
					t.Fatal(err)
				}
			}
			held, err := limiter.Reserve(t.Context(), "k", 59_980)
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			go func() {
				time.Sleep(time.Millisecond)
				if err := held.Cancel(context.Background()); err != nil {
					t.Error(err)
				}
			}()
			if _, err := limiter.Wait(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
			if waited := time.Since(began); waited > 20*time.Millisecond {
				t.Errorf("the wait for units that were free after 1 ms took %v", waited)
			}
		})
	})
}

// TestLeasedInvalidReset: a Reset that is not made leaves the leases.
func TestLeasedInvalidReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := newLeased(t, newOutage(t), nil), of("k", manyAMinute, 1)
		warm(t, s, d)
		before, _ := s.LeaseOf("k", manyAMinute)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		d.Op = driver.OpReset
		if _, err := s.Take(ended, d); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		ds := []driver.Demand{d, {Op: driver.OpReset}} // without a key and an algorithm
		if err := s.TakeAll(t.Context(), ds, make([]driver.Result, 2)); !errors.Is(err,
			driver.ErrInvalid) {
			t.Error(err)
		}
		if after, _ := s.LeaseOf("k", manyAMinute); after != before {
			t.Errorf("%d units before, %d after", before, after)
		}
	})
}

// TestLeasedForget: after Forget the new answers of Loss are in force, and no lease is left.
func TestLeasedForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		loss := 0.02
		s := newLeased(t, newOutage(t), &layer.LeasedOptions{
			Loss: func(driver.Limit) float64 { return loss }})
		d := of("k", manyAMinute, 1)
		warm(t, s, d)
		loss = 0
		s.Forget()
		for range 1000 {
			time.Sleep(time.Millisecond)
			if res := take(t, s, d); res.Source != driver.SourceStore {
				t.Fatalf("%+v", res)
			}
		}
		loss = 0.02
		s.Forget()
		warm(t, s, d)
	})
}
