package layer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/conformance"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
	"github.com/truewindow/ratelimit/layer"
)

// outage is a store that can be unavailable.
type outage struct {
	driver.Store
	mode  atomic.Int32
	calls atomic.Int64
}

const (
	up      = iota
	gone    // nothing arrives
	frozen  // demands arrive, but no answer comes
	corrupt // answers that the state is corrupt
	deaf    // the answers of what is forced are lost
)

func (s *outage) Take(ctx context.Context, d driver.Demand) (driver.Result, error) {
	s.calls.Add(1)
	switch s.mode.Load() {
	case gone:
		return driver.Result{}, driver.ErrUnavailable
	case deaf:
		if d.Op != driver.OpForce {
			return s.Store.Take(ctx, d)
		}
		fallthrough
	case frozen:
		if _, err := s.Store.Take(ctx, d); err != nil {
			return driver.Result{}, err
		}
		return driver.Result{}, driver.ErrOutcomeUnknown
	case corrupt:
		return driver.Result{}, driver.ErrCorruptState
	}
	return s.Store.Take(ctx, d)
}

func (s *outage) TakeAll(ctx context.Context, ds []driver.Demand, out []driver.Result) error {
	s.calls.Add(1)
	if s.mode.Load() == gone {
		return driver.ErrUnavailable
	}
	return s.Store.TakeAll(ctx, ds, out)
}

func newOutage(t testing.TB) *outage {
	t.Helper()
	m, err := memorystore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return &outage{Store: m}
}

func newDegraded(t testing.TB, s driver.Store, opts *layer.DegradedOptions) *layer.Degraded {
	t.Helper()
	d, err := layer.NewDegraded(s, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

var eight = algorithm.SlidingLog(driver.Limit{Name: "eight", Max: 8, Window: time.Minute})

func ask(t testing.TB, s driver.Store, op driver.Op, key string, n int64) driver.Result {
	t.Helper()
	res, err := s.Take(t.Context(), driver.Demand{Key: key, Algorithm: eight, Op: op, N: n})
	if err != nil {
		t.Fatalf("%v of %d: %v", op, n, err)
	}
	return res
}

// admit takes units one by one and returns how many were admitted before the first refusal.
func admit(t testing.TB, s driver.Store, key string, source driver.Source) (n int) {
	t.Helper()
	for ; ; n++ {
		res := ask(t, s, driver.OpTake, key, 1)
		if res.Source != source {
			t.Fatalf("decided by %v, want %v", res.Source, source)
		}
		if !res.Allowed {
			return n
		}
	}
}

func TestDegradedConformance(t *testing.T) {
	t.Parallel() // some cases wait
	conformance.Run(t, func(t testing.TB, now func() int64) conformance.Harness {
		m, err := memorystore.New(&memorystore.Options{Now: now})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		newLayer := func(t testing.TB) driver.Store {
			return newDegraded(t, m, &layer.DegradedOptions{Instances: 3})
		}
		return conformance.Harness{Store: newLayer(t), Second: newLayer, Close: m.Close}
	}, nil)
}

// TestDegradedShare: while the store is unavailable, each process admits exactly its share of the
// limit.
func TestDegradedShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newOutage(t)
		s := newDegraded(t, store, &layer.DegradedOptions{Instances: 3})
		store.mode.Store(gone)
		if n := admit(t, s, "k", driver.SourceLocal); n != 2 {
			t.Errorf("%d admitted locally, want a third of 8", n)
		}
		refused := ask(t, s, driver.OpPeek, "k", 1)
		if refused.Allowed || refused.RetryAfter != time.Minute || refused.Limit.Max != 2 ||
			refused.Remaining != 0 {
			t.Errorf("peek: %+v", refused)
		}
		time.Sleep(refused.RetryAfter - time.Microsecond)
		if ask(t, s, driver.OpTake, "k", 1).Allowed {
			t.Error("admitted 1µs before RetryAfter was over")
		}
		time.Sleep(time.Microsecond)
		if res := ask(t, s, driver.OpTake, "k", 2); !res.Allowed || res.Remaining != 0 {
			t.Errorf("after RetryAfter: %+v", res)
		}
		res, err := s.Take(t.Context(), driver.Demand{Key: "k", Algorithm: eight, N: 3})
		if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrExceedsLimit) ||
			res != (driver.Result{}) {
			t.Errorf("more than the share: %+v, %v", res, err)
		}
	})
}

// TestDegradedKnows: units that the store admitted for this process before count locally.
func TestDegradedKnows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newOutage(t)
		s := newDegraded(t, store, &layer.DegradedOptions{Instances: 2})
		ask(t, s, driver.OpTake, "k", 3)
		ask(t, s, driver.OpTake, "reset", 4)
		ask(t, s, driver.OpReset, "reset", 0)
		pair := []driver.Demand{{Key: "k", Algorithm: eight, N: 6},
			{Key: "other", Algorithm: eight, N: 1}}
		out := make([]driver.Result, 2)
		if err := s.TakeAll(t.Context(), pair, out); err != nil || out[0].Allowed {
			t.Fatalf("%+v, %v", out, err)
		}
		pair[0].Key = "third"
		if err := s.TakeAll(t.Context(), pair, out); err != nil || !out[0].Allowed {
			t.Fatalf("%+v, %v", out, err)
		}
		store.mode.Store(gone)
		for key, want := range map[string]int{"k": 1, "reset": 4, "other": 3, "third": 0,
			"new": 4} {
			if n := admit(t, s, key, driver.SourceLocal); n != want {
				t.Errorf("%s: %d admitted locally, want %d", key, n, want)
			}
		}
	})
}

// TestDegradedRecords: units that were admitted locally are recorded before the store decides on
// the key again.
func TestDegradedRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newOutage(t)
		var changes []bool
		s := newDegraded(t, store, &layer.DegradedOptions{Instances: 2,
			OnChange: func(unavailable bool) { changes = append(changes, unavailable) }})
		store.mode.Store(gone)
		for _, key := range []string{"asked", "not asked"} {
			if n := admit(t, s, key, driver.SourceLocal); n != 4 {
				t.Fatalf("%d admitted locally", n)
			}
		}
		if st := s.Stats(); !st.Unavailable || st.Pending != 2 || st.Local != 10 {
			t.Errorf("%+v", st)
		}
		store.mode.Store(up)
		if n := admit(t, s, "asked", driver.SourceStore); n != 4 {
			t.Errorf("the store admitted %d after 4 of 8 were admitted locally", n)
		}
		time.Sleep(time.Second)
		if left := ask(t, store, driver.OpPeek, "not asked", 1).Remaining; left != 4 {
			t.Errorf("%d remain in the store of the key that was not asked for, want 4", left)
		}
		if st := s.Stats(); st.Unavailable || st.Pending != 0 || st.Recorded != 8 {
			t.Errorf("%+v", st)
		}
		if len(changes) != 2 || !changes[0] || changes[1] {
			t.Errorf("OnChange was called with %v", changes)
		}
	})
}

// TestDegradedRecordsWhatCounts: units whose window is over are not recorded.
func TestDegradedRecordsWhatCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newOutage(t)
		s := newDegraded(t, store, &layer.DegradedOptions{Instances: 2})
		store.mode.Store(gone)
		ask(t, s, driver.OpTake, "k", 2)
		ask(t, s, driver.OpTake, "old", 2)
		time.Sleep(50 * time.Second)
		ask(t, s, driver.OpTake, "k", 1)
		time.Sleep(15 * time.Second)
		store.mode.Store(up)
		time.Sleep(time.Second)
		for key, want := range map[string]int64{"k": 7, "old": 8} {
			if left := ask(t, store, driver.OpPeek, key, 1).Remaining; left != want {
				t.Errorf("%s: %d remain in the store, want %d", key, left, want)
			}
		}
	})
}

// TestDegradedMonths: while the store is unavailable, a share counts in the calendar months of the
// store. What was used in the last month is not recorded in this one.
func TestDegradedMonths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const february = 29 * 24 * time.Hour
		store := newOutage(t)
		s := newDegraded(t, store, &layer.DegradedOptions{Instances: 2})
		// It is midnight on 1 January 2000, an hour before February by this offset.
		money, err := ratelimit.New(s,
			algorithm.Monthly("money", 8).WithOffset(-31*24*time.Hour+time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		want := func(n int64, source driver.Source, allowed bool, left time.Duration) {
			t.Helper()
			res, err := money.AllowN(t.Context(), "k", n)
			if err != nil || res.Source != source || res.Allowed != allowed ||
				res.ResetAfter != left || !allowed && res.RetryAfter != left {
				t.Fatalf("%+v, %v; want it from the %v, Allowed %t, and %v left", res, err,
					source, allowed, left)
			}
		}
		want(1, driver.SourceStore, true, time.Hour)
		store.mode.Store(gone)
		want(3, driver.SourceLocal, true, time.Hour)
		time.Sleep(time.Hour - time.Second)
		want(1, driver.SourceLocal, false, time.Second)
		time.Sleep(time.Second)
		want(2, driver.SourceLocal, true, february)
		store.mode.Store(up)
		time.Sleep(time.Second)
		want(6, driver.SourceStore, true, february-time.Second)
		want(1, driver.SourceStore, false, february-time.Second)
	})
}

// TestDegradedFrozen: a server that hangs, and then applies all demands that it received, records
// each local admission at most twice: by the demand itself, and by a force.
func TestDegradedFrozen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newOutage(t)
		s := newDegraded(t, store, &layer.DegradedOptions{Instances: 4})
		store.mode.Store(frozen)
		if n := admit(t, s, "k", driver.SourceLocal); n != 2 {
			t.Fatalf("%d admitted locally", n)
		}
		time.Sleep(10 * time.Second)
		store.mode.Store(up)
		time.Sleep(time.Second)
		if left := ask(t, store, driver.OpPeek, "k", 1).Remaining; left < 4 || left > 6 {
			t.Errorf("%d remain in the store, after 2 of 8 were admitted", left)
		}
	})
}

// TestDegradedForcesSeldom: units are not sent to the store again and again if no answer comes.
func TestDegradedForcesSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newOutage(t)
		s := newDegraded(t, store, &layer.DegradedOptions{Instances: 4})
		store.mode.Store(gone)
		ask(t, s, driver.OpTake, "k", 2)
		store.mode.Store(deaf)
		time.Sleep(5 * time.Second)
		store.mode.Store(up)
		time.Sleep(time.Second)
		if left := ask(t, store, driver.OpPeek, "k", 1).Remaining; left != 2 {
			t.Errorf("%d remain in the store, after 2 of 8 were admitted and sent three times",
				left)
		}
		if st := s.Stats(); st.Pending != 0 || st.Unconfirmed != 6 {
			t.Errorf("%+v", st)
		}
	})
}

// TestDegradedLeavesUndecided: demands that only the store can decide, or for more than the share,
// are not decided locally.
func TestDegradedLeavesUndecided(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newOutage(t)
		s := newDegraded(t, store, &layer.DegradedOptions{Instances: 2})
		l, err := ratelimit.New(s, eight)
		if err != nil {
			t.Fatal(err)
		}
		renewal := driver.Demand{Key: "k", Algorithm: algorithm.Budget(eight), Op: driver.OpHold,
			ID: 7} // of a hold that another process has placed
		settlement := renewal
		settlement.Op, settlement.N = driver.OpSettle, 1
		store.mode.Store(gone)
		for _, policy := range []ratelimit.Policy{ratelimit.FailClosed, ratelimit.FailOpen} {
			if res, err := l.WithPolicy(policy).Allow(t.Context(),
				"k"); res.Source != driver.SourceLocal || err != nil {
				t.Errorf("%v: %+v, %v", policy, res, err)
			}
		}
		for _, d := range []driver.Demand{{Key: "k", Algorithm: eight, Op: driver.OpReset},
			renewal, settlement} {
			if res, err := s.Take(t.Context(), d); !errors.Is(err, driver.ErrUnavailable) ||
				res != (driver.Result{}) {
				t.Errorf("%v: %+v, %v", d.Op, res, err)
			}
		}
		over := driver.Demand{Key: "k", Algorithm: eight, N: 5}
		if res, err := s.Take(t.Context(), over); !errors.Is(err, driver.ErrUnavailable) ||
			res != (driver.Result{}) {
			t.Errorf("more than the share: %+v, %v", res, err)
		}
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		if res, err := s.Take(canceled,
			driver.Demand{Key: "k", Algorithm: eight, N: 1}); err == nil || res.Allowed {
			t.Errorf("a caller who has left: %+v, %v", res, err)
		}
		store.mode.Store(corrupt)
		if res, err := s.Take(t.Context(), driver.Demand{Key: "corrupt", Algorithm: eight,
			N: 1}); !errors.Is(err, driver.ErrCorruptState) || res.Allowed {
			t.Errorf("corrupt: %+v, %v", res, err)
		}
	})
}

func TestDegradedTakeAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newOutage(t)
		s := newDegraded(t, store, &layer.DegradedOptions{Instances: 2})
		store.mode.Store(gone)
		ds := []driver.Demand{{Key: "a", Algorithm: eight, N: 3},
			{Key: "b", Algorithm: eight, N: 2}}
		out := make([]driver.Result, 2)
		if err := s.TakeAll(t.Context(), ds, out); err != nil || !out[0].Allowed ||
			out[0].Remaining != 1 || out[1].Source != driver.SourceLocal {
			t.Fatalf("%+v, %v", out, err)
		}
		if err := s.TakeAll(t.Context(), ds, out); err != nil || out[0].Allowed || !out[1].Allowed {
			t.Fatalf("%+v, %v", out, err)
		}
		store.mode.Store(up)
		if err := s.TakeAll(t.Context(), ds, out); err != nil ||
			out[0].Source != driver.SourceStore || out[0].Remaining != 2 ||
			out[1].Remaining != 4 {
			t.Errorf("%+v, %v", out, err)
		}
	})
}

// TestDegradedBounded: a flood of keys while the store is unavailable takes bounded memory, and
// keys with a history keep it.
func TestDegradedBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newOutage(t)
		s := newDegraded(t, store, &layer.DegradedOptions{Instances: 2, MaxKeys: 100})
		store.mode.Store(gone)
		if n := admit(t, s, "live", driver.SourceLocal); n != 4 {
			t.Fatal(n)
		}
		flood := func() (admitted int) {
			for i := range 10_000 {
				res, err := s.Take(t.Context(),
					driver.Demand{Key: fmt.Sprint(i), Algorithm: eight, N: 1})
				if err == nil && res.Allowed {
					admitted++
				} else if !errors.Is(err, driver.ErrUnavailable) {
					t.Fatalf("%+v, %v", res, err)
				}
			}
			return admitted
		}
		if n := flood(); n != 99 {
			t.Errorf("%d keys of the flood admitted, want 99", n)
		}
		if ask(t, s, driver.OpTake, "live", 1).Allowed {
			t.Error("the flood deleted a history")
		}
		time.Sleep(2 * time.Minute)
		if n := flood(); n != 100 {
			t.Errorf("%d keys of the next flood admitted, want 100", n)
		}
		if st := s.Stats(); st.Pending > 100 || st.Keys > 100 {
			t.Errorf("%+v", st)
		}
	})
}

// caching answers each TakeAll, the first results as from a cache.
type caching struct {
	*outage
	cached int
}

func (s *caching) TakeAll(_ context.Context, _ []driver.Demand, out []driver.Result) error {
	for i := range out {
		out[i] = driver.Result{Limit: driver.Limit{Max: 8}}
		if i < s.cached {
			out[i].Source = driver.SourceCache
		}
	}
	return nil
}

// TestDegradedCachedAnswers: an answer that is all from a cache does not show that the store is
// available again. One result from the server does.
func TestDegradedCachedAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for cached := range 3 {
			store := &caching{newOutage(t), cached}
			s := newDegraded(t, store, &layer.DegradedOptions{Instances: 2})
			store.mode.Store(gone)
			ask(t, s, driver.OpPeek, "k", 1)
			ds := []driver.Demand{{Key: "a", Algorithm: eight, N: 1},
				{Key: "b", Algorithm: eight, N: 1}}
			if err := s.TakeAll(t.Context(), ds, make([]driver.Result, 2)); err != nil {
				t.Fatal(err)
			}
			if got := s.Stats().Unavailable; got != (cached == 2) {
				t.Errorf("unavailable is %v after an answer with %d of 2 results from a cache",
					got, cached)
			}
		}
	})
}

func TestDegradedOptions(t *testing.T) {
	store := newOutage(t)
	for _, tt := range []struct {
		store driver.Store
		opts  *layer.DegradedOptions
	}{{nil, &layer.DegradedOptions{Instances: 1}}, {store, nil}, {store, &layer.DegradedOptions{}},
		{store, &layer.DegradedOptions{Instances: 1, MaxKeys: -1}}} {
		s, err := layer.NewDegraded(tt.store, tt.opts)
		if !errors.Is(err, driver.ErrInvalid) || s != nil {
			t.Errorf("%+v: %v, %v", tt.opts, s, err)
		}
	}
}

func TestDegradedClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // which fails if a goroutine is left
		store := newOutage(t)
		s := newDegraded(t, store, &layer.DegradedOptions{Instances: 2})
		store.mode.Store(gone)
		ask(t, s, driver.OpTake, "k", 1)
		for range 2 {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if res, err := s.Take(t.Context(), driver.Demand{Key: "k", Algorithm: eight,
			N: 1}); !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("%+v, %v", res, err)
		}
		store.mode.Store(up)
		ask(t, s, driver.OpTake, "k", 1)
	})
}

// TestDegradedBound: in no window around outages more is admitted than the limit and the shares of
// all processes, and in none of a single outage more than the shares.
func TestDegradedBound(t *testing.T) {
	local := 0
	for seed := range depth.Of[uint64](6, 200) {
		synctest.Test(t, func(t *testing.T) {
			const instances, limit, window = 3, 30, 10 * time.Second
			a := algorithm.SlidingLog(driver.Limit{Max: limit, Window: window})
			store := newOutage(t)
			var mu sync.Mutex
			var admitted []time.Time
			var wg sync.WaitGroup
			end := time.Now().Add(2 * time.Minute)
			for i := range instances {
				s := newDegraded(t, store, &layer.DegradedOptions{Instances: instances})
				r := rand.New(rand.NewPCG(seed, uint64(i)))
				wg.Go(func() {
					for time.Now().Before(end) {
						time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
						res, err := s.Take(t.Context(),
							driver.Demand{Key: "k", Algorithm: a, N: 1})
						if err != nil {
							t.Error(err)
						} else if res.Allowed {
							mu.Lock()
							admitted = append(admitted, time.Now())
							mu.Unlock()
						}
					}
				})
			}
			r := rand.New(rand.NewPCG(seed, instances))
			type span struct{ begin, end time.Time }
			var outages []span
			for time.Now().Before(end) {
				time.Sleep(time.Duration(r.IntN(15000)) * time.Millisecond)
				was, mode := store.mode.Load(), int32(r.IntN(3))
				if mode != up && was == up {
					outages = append(outages, span{time.Now(), end})
				} else if mode == up && was != up {
					outages[len(outages)-1].end = time.Now()
				}
				store.mode.Store(mode)
			}
			wg.Wait()
			most, mostLocal := 0, 0
			for first, last := 0, 0; last < len(admitted); last++ {
				for !admitted[first].After(admitted[last].Add(-window)) {
					first++
				}
				most = max(most, last-first+1)
				at := admitted[last]
				if slices.ContainsFunc(outages, func(o span) bool {
					return o.begin.Before(at.Add(-window)) && at.Before(o.end)
				}) {
					mostLocal = max(mostLocal, last-first+1)
				}
			}
			if shares := instances * (limit / instances); mostLocal > shares {
				t.Errorf("seed %d: %d in a window of an outage, want %d at most", seed, mostLocal,
					shares)
			}
			local = max(local, mostLocal)
			if bound := limit + instances*(limit/instances); most > bound {
				t.Errorf("seed %d: %d in a window, want %d at most", seed, most, bound)
			} else if most <= limit/2 {
				t.Errorf("seed %d: no more than %d in a window: too few to tell", seed, most)
			}
		})
	}
	if local <= 15 {
		t.Errorf("no more than %d in a window of an outage: too few to tell", local)
	}
}
