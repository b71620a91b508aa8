package layer_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/layer"
)

func newTokens(t *testing.T, s driver.Store, limits ...driver.Limit) *ratelimit.Limiter {
	t.Helper()
	var algorithms []driver.Algorithm
	for _, l := range limits {
		algorithms = append(algorithms, algorithm.Budget(algorithm.SlidingLog(l)))
	}
	l, err := ratelimit.New(s, algorithms...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func newCalls(t *testing.T, s driver.Store, most int64) *ratelimit.Limiter {
	t.Helper()
	l, err := ratelimit.New(s, algorithm.InFlight("calls", most))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func reserve(
	t *testing.T, l *ratelimit.Limiter, n int64, source driver.Source,
) *ratelimit.Reservation {
	t.Helper()
	r, err := l.Reserve(t.Context(), "k", n)
	if err != nil || !r.Allowed() || r.Result().Source != source {
		t.Fatalf("%+v, %v; want %d units from %v", r.Result(), err, n, source)
	}
	return r
}

// charged returns how many units a store has of 100.
func charged(t *testing.T, s driver.Store) int64 {
	t.Helper()
	res, err := newTokens(t, s, driver.PerMinute("tokens", 100)).Peek(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	return res.Limit.Max - res.Remaining
}

// TestDegradedReservation: a reservation that was admitted locally is settled to the units used,
// under two limits too, whether the store has recovered before or not.
func TestDegradedReservation(t *testing.T) {
	one := []driver.Limit{driver.PerMinute("tokens", 100)}
	two := append(one, driver.PerHour("hourly", 200))
	for _, tt := range []struct {
		name   string
		limits []driver.Limit
		back   bool // the store has recovered when the reservation is settled
		used   int64
	}{
		{"less, away", one, false, 10},
		{"more, away", one, false, 50},
		{"two limits, less, away", two, false, 10},
		{"two limits, more, away", two, false, 50},
		{"less, back", one, true, 10},
		{"two limits, more, back", two, true, 50},
		{"nothing", one, true, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newOutage(t)
				s := newDegraded(t, store, &layer.DegradedOptions{Instances: 2})
				tokens := newTokens(t, s, tt.limits...)
				store.mode.Store(gone)
				r := reserve(t, tokens, 40, driver.SourceLocal)
				if res, err := tokens.AllowN(t.Context(), "k", 11); err != nil || res.Allowed {
					t.Errorf("%+v, %v; more than the share beside what is held", res, err)
				}
				time.Sleep(time.Second)
				if tt.back {
					store.mode.Store(up)
					time.Sleep(time.Second)
				}
				if err := r.Commit(t.Context(), tt.used); err != nil {
					t.Error(err)
				}
				store.mode.Store(up)
				time.Sleep(time.Second)
				if got := charged(t, store); got != tt.used {
					t.Errorf("%d units are charged in the store, want %d", got, tt.used)
				}
				if err := r.Commit(t.Context(), tt.used); !errors.Is(err, ratelimit.ErrNotHeld) {
					t.Errorf("a second settlement: %v", err)
				}
			})
		})
	}
}

// TestDegradedPlacesHolds: what is held locally counts locally while it is renewed, is placed in
// the store when that is back, and lives there from then on.
func TestDegradedPlacesHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newOutage(t)
		s := newDegraded(t, store, &layer.DegradedOptions{Instances: 2})
		tokens := newTokens(t, s, driver.PerMinute("tokens", 100))
		claims := []ratelimit.Claim{
			{Limiter: tokens, Key: "k", N: 40}, {Limiter: newCalls(t, s, 2), Key: "k", N: 1},
		}
		left := func(source driver.Source, want ...int64) {
			t.Helper()
			res, err := ratelimit.PeekAll(t.Context(), claims...)
			if err != nil || res[0].Source != source || res[0].Remaining != want[0] ||
				res[1].Remaining != want[1] {
				t.Errorf("%+v, %v; want %v to have %d left", res, err, source, want)
			}
		}
		claims[0].N = 10
		store.mode.Store(gone)
		r, err := ratelimit.ReserveAll(t.Context(),
			ratelimit.Claim{Limiter: tokens, Key: "k", N: 40}, claims[1])
		if err != nil || !r.Allowed() || r.Result().Source != driver.SourceLocal {
			t.Fatalf("%+v, %v", r, err)
		}
		time.Sleep(5 * time.Minute)
		if res, err := r.Extend(t.Context(), 11); !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("extended beyond the share: %+v, %v", res, err)
		}
		left(driver.SourceLocal, 10, 0)
		if st := s.Stats(); st.Holds != 2 || st.Pending != 0 {
			t.Errorf("%+v", st)
		}
		store.mode.Store(up)
		time.Sleep(time.Second)
		left(driver.SourceStore, 60, 1)
		time.Sleep(5 * time.Minute)
		more, err := r.Extend(t.Context(), 15)
		if err != nil || !more[0].Allowed || more[0].Source != driver.SourceStore {
			t.Errorf("extended: %+v, %v", more, err)
		}
		left(driver.SourceStore, 45, 1)
		if err := r.Commit(t.Context(), 30); err != nil {
			t.Error(err)
		}
		left(driver.SourceStore, 70, 2)
		if st := s.Stats(); st.Holds != 0 || st.Pending != 0 || st.Lost != 0 {
			t.Errorf("%+v", st)
		}
	})
}

// TestDegradedReleasesAtOnce: calls that began in an outage are free as soon as they are released
// after it or, if the store is being told of them, when it has been told.
func TestDegradedReleasesAtOnce(t *testing.T) {
	const round = 200 * time.Millisecond // after which the store is told again
	for _, c := range []struct {
		name        string
		lasts, told time.Duration // the outage, and the pause after it
	}{
		{"before the store is told", 2*time.Second - round/2, 0},
		{"while the store is told", 2 * time.Second, 0},
		{"when the store was told", 2 * time.Second, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newOutage(t)
				s := newDegraded(t, store, &layer.DegradedOptions{Instances: 1})
				calls, err := ratelimit.New(s,
					algorithm.InFlight("calls", 5).WithTimeout(10*time.Minute))
				if err != nil {
					t.Fatal(err)
				}
				store.mode.Store(gone)
				var open []*ratelimit.Reservation
				for range 4 {
					open = append(open, reserve(t, calls, 1, driver.SourceLocal))
				}
				time.Sleep(c.lasts)
				store.mode.Store(up)
				if c.told > 0 {
					time.Sleep(c.told)
					if res, err := calls.Peek(t.Context(), "k"); err != nil || res.Remaining != 1 {
						t.Errorf("%+v, %v; want the store to have the calls", res, err)
					}
				}
				for _, r := range open {
					if err := r.Cancel(t.Context()); err != nil {
						t.Error(err)
					}
				}
				if c.lasts%round == 0 {
					synctest.Wait()
				}
				reserve(t, calls, 5, driver.SourceStore)
			})
		})
	}
}

// TestDegradedKnowsSettlements: what was canceled and committed before an outage is known in it.
func TestDegradedKnowsSettlements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newOutage(t)
		s := newDegraded(t, store, &layer.DegradedOptions{Instances: 1})
		tokens, calls := newTokens(t, s, driver.Limit{Name: "tokens", Max: 410,
			Window: 10 * time.Minute}), newCalls(t, s, 20)
		for range 20 {
			if err := reserve(t, calls, 1, driver.SourceStore).Cancel(t.Context()); err != nil {
				t.Error(err)
			}
		}
		for range 5 {
			r := reserve(t, tokens, min(400, tokens.Max()), driver.SourceStore)
			if err := r.Commit(t.Context(), 2); err != nil {
				t.Error(err)
			}
		}
		held := reserve(t, tokens, 100, driver.SourceStore)
		store.mode.Store(gone)
		reserve(t, calls, 20, driver.SourceLocal)
		for _, tt := range []struct {
			n       int64
			allowed bool
		}{{301, false}, {300, true}, {1, false}} {
			res, err := tokens.AllowN(t.Context(), "k", tt.n)
			if err != nil || res.Allowed != tt.allowed || res.Source != driver.SourceLocal {
				t.Errorf("%d tokens: %+v, %v", tt.n, res, err)
			}
		}
		if err := held.Cancel(t.Context()); err != nil {
			t.Error(err)
		}
		reserve(t, tokens, 100, driver.SourceLocal)
	})
}

// TestDegradedSettlesAfterCall: in an outage a reservation is settled whose call has ended before,
// and what records nothing is settled for another process.
func TestDegradedSettlesAfterCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newOutage(t)
		s := newDegraded(t, store, &layer.DegradedOptions{Instances: 1})
		tokens, calls := newTokens(t, s, driver.PerHour("tokens", 100)), newCalls(t, s, 2)
		r := reserve(t, tokens, 40, driver.SourceStore)
		if err := reserve(t, calls, 1, driver.SourceStore).Cancel(t.Context()); err != nil {
			t.Error(err)
		}
		other := reserve(t, newTokens(t, store, driver.PerHour("tokens", 100)), 40,
			driver.SourceStore)
		text, err := other.Token()
		if err != nil {
			t.Fatal(err)
		}
		resumed, err := ratelimit.Resume(text, tokens)
		if err != nil {
			t.Fatal(err)
		}
		store.mode.Store(gone)
		if err := r.Commit(t.Context(), 30); err != nil {
			t.Error(err)
		}
		if err := resumed.Commit(t.Context(), 1); !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("units of another process: %v", err)
		}
		demand := driver.Demand{Key: "k", Algorithm: algorithm.InFlight("calls", 2),
			Op: driver.OpSettle, ID: 7}
		if res, err := s.Take(t.Context(), demand); err != nil || !res.Allowed {
			t.Errorf("%+v, %v", res, err)
		}
		store.mode.Store(up)
		time.Sleep(time.Second)
		if got := charged(t, store); got != 70 {
			t.Errorf("%d units are charged, want 30 that were used and 40 that are held", got)
		}
		if err := resumed.Commit(t.Context(), 1); err != nil {
			t.Error(err)
		}
		if st := s.Stats(); st.Holds != 0 || st.Lost != 0 {
			t.Errorf("%+v", st)
		}
	})
}

// TestDegradedBucketHold: a hold that is canceled frees only itself, however much the bucket has
// been refilled since it was placed.
func TestDegradedBucketHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newOutage(t)
		s := newDegraded(t, store, &layer.DegradedOptions{Instances: 1})
		bucket, err := ratelimit.New(s,
			algorithm.Budget(algorithm.GCRA(driver.PerMinute("bucket", 10))))
		if err != nil {
			t.Fatal(err)
		}
		store.mode.Store(gone)
		r := reserve(t, bucket, 5, driver.SourceLocal)
		time.Sleep(2 * time.Minute)
		if err := r.Cancel(t.Context()); err != nil {
			t.Error(err)
		}
		if res, err := bucket.AllowN(t.Context(), "k", 10); err != nil || !res.Allowed {
			t.Errorf("%+v, %v", res, err)
		}
		if res, err := bucket.AllowN(t.Context(), "k", 1); err != nil || res.Allowed {
			t.Errorf("%+v, %v", res, err)
		}
	})
}

// TestDegradedHoldTimesOut: what is held locally is free when nobody renews it.
func TestDegradedHoldTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newOutage(t)
		s := newDegraded(t, store, &layer.DegradedOptions{Instances: 2})
		store.mode.Store(gone)
		hold := driver.Demand{Key: "k", Algorithm: algorithm.Budget(eight), Op: driver.OpHold, N: 4,
			ID: 7}
		if res, err := s.Take(t.Context(), hold); err != nil || res.Units != 4 {
			t.Fatalf("%+v, %v", res, err)
		}
		hold.ID = 8
		for _, tt := range []struct {
			after   time.Duration
			allowed bool
		}{{59 * time.Second, false}, {9 * time.Second, true}} {
			time.Sleep(tt.after)
			if res, err := s.Take(t.Context(), hold); err != nil || res.Allowed != tt.allowed {
				t.Errorf("%v later: %+v, %v", tt.after, res, err)
			}
		}
	})
}

// TestDegradedSettlesInOutage: what the store holds is settled in an outage, once, and the store
// learns it afterwards, also if an answer is lost.
func TestDegradedSettlesInOutage(t *testing.T) {
	for _, mode := range []int32{gone, frozen} {
		synctest.Test(t, func(t *testing.T) {
			store := newOutage(t)
			s := newDegraded(t, store, &layer.DegradedOptions{Instances: 2})
			tokens := newTokens(t, s, driver.PerMinute("tokens", 100))
			one := reserve(t, tokens, 60, driver.SourceStore) // more than the share
			two := reserve(t, tokens, 10, driver.SourceStore)
			store.mode.Store(mode)
			time.Sleep(50 * time.Second)
			if err := one.Commit(t.Context(), 30); err != nil {
				t.Error(err)
			}
			if err := one.Commit(t.Context(), 30); !errors.Is(err, ratelimit.ErrNotHeld) {
				t.Errorf("a second settlement: %v", err)
			}
			local := reserve(t, tokens, 10, driver.SourceLocal)
			if res, err := tokens.Allow(t.Context(), "k"); err != nil || res.Allowed {
				t.Errorf("%+v, %v; 30 are recorded and 20 held, of a share of 50", res, err)
			}
			time.Sleep(5 * time.Minute)
			store.mode.Store(up)
			time.Sleep(time.Second)
			// The log has what was settled when it learns it: what was held has timed out there.
			if got := charged(t, store); got != 50 {
				t.Errorf("%d units are charged, want 30 that were settled and 20 held", got)
			}
			for _, r := range []*ratelimit.Reservation{two, local} {
				if err := r.Commit(t.Context(), 15); err != nil {
					t.Error(err)
				}
			}
			if got := charged(t, store); got != 60 {
				t.Errorf("%d units are charged, want 60", got)
			}
			if st := s.Stats(); st.Holds != 0 || st.Pending != 0 || st.Lost != 0 {
				t.Errorf("%+v", st)
			}
		})
	}
}

// TestDegradedUnknownHold: a hold whose answer was lost is settled once, whether the store has it
// or not.
func TestDegradedUnknownHold(t *testing.T) {
	for _, used := range []int64{0, 5, 30} {
		for _, full := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				store := newOutage(t)
				s := newDegraded(t, store, &layer.DegradedOptions{Instances: 2})
				tokens := newTokens(t, s, driver.PerHour("tokens", 100))
				if full { // the hold does not fit, and the answer that says so is lost
					if _, err := newTokens(t, store, driver.PerHour("tokens", 100)).
						Force(t.Context(), "k", 90); err != nil {
						t.Fatal(err)
					}
				}
				store.mode.Store(frozen)
				r := reserve(t, tokens, 20, driver.SourceLocal)
				if err := r.Commit(t.Context(), used); err != nil {
					t.Error(err)
				}
				store.mode.Store(up)
				time.Sleep(time.Second)
				res, err := newTokens(t, store, driver.PerHour("tokens", 200)).
					Peek(t.Context(), "k")
				want := 200 - used
				if full {
					want -= 90
				}
				if err != nil || res.Remaining != want {
					t.Errorf("used %d, full %v: %+v, %v; want %d left", used, full, res, err, want)
				}
				if st := s.Stats(); st.Holds != 0 || st.Pending != 0 || st.Lost != 0 {
					t.Errorf("%+v", st)
				}
			})
		}
	}
}

// TestDegradedRefusedUnknown: a hold whose answer was lost, and that is refused locally, does not
// stay in the store.
func TestDegradedRefusedUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newOutage(t)
		s := newDegraded(t, store, &layer.DegradedOptions{Instances: 2})
		tokens := newTokens(t, s, driver.PerMinute("tokens", 100))
		reserve(t, tokens, 40, driver.SourceStore)
		store.mode.Store(frozen)
		if r, err := tokens.Reserve(t.Context(), "k", 20); err != nil || r.Allowed() {
			t.Errorf("%+v, %v", r, err)
		}
		if got := charged(t, store.Store); got != 60 {
			t.Errorf("%d units are charged in the outage, want 60", got)
		}
		store.mode.Store(up)
		time.Sleep(time.Second)
		if got := charged(t, store); got != 40 {
			t.Errorf("%d units are charged, want 40", got)
		}
	})
}

// TestDegradedRecordsBesideHolds: units that no longer count are not recorded, although as many are
// held.
func TestDegradedRecordsBesideHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newOutage(t)
		s := newDegraded(t, store, &layer.DegradedOptions{Instances: 1})
		tokens := newTokens(t, s, driver.PerMinute("tokens", 100))
		store.mode.Store(gone)
		if res, err := tokens.AllowN(t.Context(), "k", 50); err != nil || !res.Allowed {
			t.Fatalf("%+v, %v", res, err)
		}
		time.Sleep(30 * time.Second)
		reserve(t, tokens, 40, driver.SourceLocal)
		time.Sleep(31 * time.Second)
		store.mode.Store(up)
		time.Sleep(time.Second)
		if got := charged(t, store); got != 40 {
			t.Errorf("%d units are charged, want the 40 that are held", got)
		}
	})
}

// TestDegradedWaitsForRoom: a local hold for which the store has no room is placed when it has, or
// recorded when it is settled; an extension that does not fit leaves what the store holds.
func TestDegradedWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newOutage(t)
		inside := newTokens(t, store, driver.PerHour("tokens", 100))
		s := newDegraded(t, store, &layer.DegradedOptions{Instances: 2})
		tokens := newTokens(t, s, driver.PerHour("tokens", 100))
		other := reserve(t, inside, 70, driver.SourceStore)
		before := reserve(t, tokens, 10, driver.SourceStore)
		store.mode.Store(gone)
		if res, err := before.Extend(t.Context(), 30); err != nil || !res[0].Allowed {
			t.Fatalf("%+v, %v", res, err)
		}
		placed := reserve(t, tokens, 5, driver.SourceLocal)
		settled := reserve(t, tokens, 5, driver.SourceLocal)
		store.mode.Store(up)
		time.Sleep(5 * time.Minute)
		if err := settled.Commit(t.Context(), 6); err != nil {
			t.Error(err)
		}
		left := func(want int64) {
			t.Helper()
			time.Sleep(time.Second)
			if res, err := inside.Peek(t.Context(), "k"); err != nil || res.Remaining != want {
				t.Errorf("%+v, %v; want %d left", res, err, want)
			}
		}
		left(100 - 70 - 10 - 5 - 6)
		if err := other.Cancel(t.Context()); err != nil {
			t.Error(err)
		}
		left(100 - 40 - 5 - 6)
		for _, r := range []*ratelimit.Reservation{before, placed} {
			if err := r.Commit(t.Context(), 1); err != nil {
				t.Error(err)
			}
		}
		left(100 - 2 - 6)
	})
}

// TestDegradedForgetsHolds: after a reset, and if the store has lost a hold, nothing is settled.
func TestDegradedForgetsHolds(t *testing.T) {
	for _, tt := range []struct {
		name         string
		reset        driver.Store // or nil: s
		before, want int64
	}{{"reset here", nil, 0, 0}, {"lost", newOutage(t), 1, 2}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newOutage(t)
				s := newDegraded(t, store, &layer.DegradedOptions{Instances: 1})
				tokens := newTokens(t, s, driver.PerHour("tokens", 100))
				inStore := reserve(t, tokens, 10, driver.SourceStore)
				renewed := reserve(t, tokens, 10, driver.SourceStore)
				store.mode.Store(gone)
				local := reserve(t, tokens, 10, driver.SourceLocal)
				inside := newTokens(t, store.Store, driver.PerHour("tokens", 100))
				if tt.reset == nil {
					store.mode.Store(up)
					if err := tokens.Reset(t.Context(), "k"); err != nil {
						t.Fatal(err)
					}
				} else {
					if err := inside.Reset(t.Context(), "k"); err != nil {
						t.Fatal(err)
					}
					if err := inStore.Commit(t.Context()); err != nil {
						t.Error("settled in the outage: ", err)
					}
					time.Sleep(time.Minute)
					store.mode.Store(up)
					time.Sleep(time.Second)
				}
				if got := s.Stats().Lost; got != tt.want {
					t.Errorf("%d holds are lost, want %d", got, tt.want)
				}
				if err := renewed.Commit(t.Context()); !errors.Is(err, ratelimit.ErrNotHeld) {
					t.Errorf("renewed: %v", err)
				}
				err := local.Commit(t.Context())
				if wants := tt.reset == nil; errors.Is(err, ratelimit.ErrNotHeld) != wants {
					t.Errorf("local: %v", err)
				}
			})
		})
	}
}

// TestDegradedForgetsIdleHolds: a local hold that timed out can be settled for a day, and takes no
// memory after it.
func TestDegradedForgetsIdleHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newOutage(t)
		s := newDegraded(t, store, &layer.DegradedOptions{Instances: 1})
		hold := driver.Demand{Key: "k", Algorithm: algorithm.Budget(eight), Op: driver.OpHold, N: 1,
			ID: 1}
		store.mode.Store(gone)
		for hold.ID = 1; hold.ID <= 2; hold.ID++ {
			if res, err := s.Take(t.Context(), hold); err != nil || res.Units != 1 {
				t.Fatalf("%+v, %v", res, err)
			}
		}
		time.Sleep(2 * time.Minute)
		store.mode.Store(up)
		time.Sleep(23 * time.Hour)
		settle := hold
		settle.Op, settle.ID = driver.OpSettle, 1
		if res, err := s.Take(t.Context(), settle); err != nil || res.Units != 1 {
			t.Errorf("settled late: %+v, %v", res, err)
		}
		time.Sleep(time.Second)
		peek := driver.Demand{Key: "k", Algorithm: hold.Algorithm, Op: driver.OpPeek, N: 1}
		if res, err := store.Take(t.Context(), peek); err != nil || res.Remaining != 7 {
			t.Errorf("%+v, %v; want the unit to be recorded", res, err)
		}
		time.Sleep(2 * time.Hour)
		if st := s.Stats(); st.Holds != 0 {
			t.Errorf("%+v", st)
		}
	})
}

// TestDegradedLocalIDs: holds that two processes place locally for one key are both placed and
// settled.
func TestDegradedLocalIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newOutage(t)
		store.mode.Store(gone)
		var open []*ratelimit.Reservation
		for range 2 {
			s := newDegraded(t, store, &layer.DegradedOptions{Instances: 2})
			for range 5 {
				open = append(open, reserve(t, newTokens(t, s, driver.PerHour("tokens", 100)), 10,
					driver.SourceLocal))
			}
		}
		store.mode.Store(up)
		time.Sleep(time.Second)
		inside := newTokens(t, store, driver.PerHour("tokens", 100))
		for i, r := range open {
			want := int64(9 * i)
			if res, err := inside.Peek(t.Context(), "k"); err != nil || res.Remaining != want {
				t.Errorf("%+v, %v; want %d left", res, err, want)
			}
			if err := r.Commit(t.Context(), 1); err != nil {
				t.Error(err)
			}
		}
	})
}
