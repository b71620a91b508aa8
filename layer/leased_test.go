package layer_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/layer"
)

var manyAMinute = algorithm.SlidingLog(driver.PerMinute("many", 60_000))

// roomy admits 1,000 a second and more.
var roomy = algorithm.SlidingLog(driver.PerMinute("roomy", 100_000))

func newLeased(t testing.TB, s driver.Store, opts *layer.LeasedOptions) *layer.Leased {
	t.Helper()
	l, err := layer.NewLeased(s, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func of(key string, a driver.Algorithm, n int64) driver.Demand {
	return driver.Demand{Key: key, Algorithm: a, N: n}
}

// warm makes d so often that its key gets leases, and has one with at least a unit.
func warm(t testing.TB, s *layer.Leased, d driver.Demand) {
	t.Helper()
	for range 100_000 {
		time.Sleep(2 * time.Millisecond)
		if _, err := s.Take(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if units, _ := s.LeaseOf(d.Key, d.Algorithm.(driver.Ahead)); units >= max(d.N, 4) {
			return
		}
	}
	t.Fatalf("no lease: %+v", s.Stats())
}

func take(t testing.TB, s driver.Store, d driver.Demand) driver.Result {
	t.Helper()
	res, err := s.Take(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// demands notes what reaches the store inside, and can answer in place of it.
type demands struct {
	driver.Store
	mu     sync.Mutex
	all    []driver.Demand
	answer func(d driver.Demand) (driver.Result, error) // nil: the store's
}

func (s *demands) Take(ctx context.Context, d driver.Demand) (driver.Result, error) {
	s.mu.Lock()
	d.Key = strings.Clone(d.Key)
	s.all = append(s.all, d)
	answer := s.answer
	s.mu.Unlock()
	if answer != nil {
		return answer(d)
	}
	return s.Store.Take(ctx, d)
}

func (s *demands) TakeAll(ctx context.Context, ds []driver.Demand, out []driver.Result) error {
	s.mu.Lock()
	s.all = append(s.all, ds...)
	answer := s.answer
	s.mu.Unlock()
	if answer != nil {
		_, err := answer(ds[0])
		return err
	}
	return s.Store.TakeAll(ctx, ds, out)
}

// reached returns what has reached the store since it was last called.
func (s *demands) reached() []driver.Demand {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.all
	s.all = nil
	return all
}

// asked is reached without what was taken ahead in the background.
func (s *demands) asked() []driver.Demand {
	return slices.DeleteFunc(s.reached(), func(d driver.Demand) bool { return d.Least > 0 })
}

func (s *demands) answers(answer func(d driver.Demand) (driver.Result, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

// TestLeased: a hot key is decided from leases, and the store inside is seldom called.
func TestLeased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &demands{Store: newOutage(t)}
		s, d := newLeased(t, inner, nil), of("k", roomy, 1)
		for range 60_000 { // then there is credit for all that can be used in a lead
			time.Sleep(time.Millisecond)
			take(t, s, d)
			synctest.Wait()
		}
		before := s.Stats()
		inner.reached()
		for range 10_000 {
			time.Sleep(time.Millisecond)
			res := take(t, s, d)
			if !res.Allowed || res.Units != 1 || res.Limit != roomy.Limit() ||
				res.RetryAfter != 0 || res.ResetAfter <= 0 || res.Remaining < 0 {
				t.Fatalf("%+v", res)
			}
			synctest.Wait()
		}
		after, calls := s.Stats(), len(inner.reached())
		m := 1000 * .8 * .6 // units in a lease
		if float64(calls) > 1.5*10_000/(m-2*math.Sqrt(m)) || after.Keys != 1 ||
			after.Calls-before.Calls != int64(calls) ||
			after.Admitted-before.Admitted < 10_000-int64(calls) {
			t.Errorf("%d calls for 10,000 decisions: %+v", calls, after)
		}
		if lost := after.Lost - before.Lost; lost > (after.Taken-before.Taken)/50 {
			t.Errorf("%d units are lost: %+v", lost, after)
		}
		time.Sleep(time.Hour)
		if calls := inner.reached(); len(calls) > 0 {
			t.Errorf("at rest there were %d calls", len(calls))
		}
	})
}

// TestLeasedExact: all else the store inside decides.
func TestLeasedExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &demands{Store: newOutage(t)}
		s := newLeased(t, inner, &layer.LeasedOptions{Loss: func(l driver.Limit) float64 {
			switch l.Name {
			case "none":
				return 0
			case "wrong":
				return math.NaN()
			}
			return 0.02
		}})
		budget := algorithm.Budget(algorithm.SlidingLog(driver.PerMinute("budget", 60_000)))
		none := algorithm.SlidingLog(driver.PerMinute("none", 60_000))
		for _, d := range []driver.Demand{
			of("k", algorithm.SlidingLog(driver.PerMinute("small", 799)), 1),
			of("k", none, 1),
			of("k", algorithm.SlidingLog(driver.PerMinute("wrong", 60_000)), 1),
			of("k", algorithm.SlidingWindowCounter(driver.PerMinute("counter", 60_000)), 1),
			of("k", algorithm.Budget(algorithm.FixedWindow(driver.PerMinute("fixed", 60_000))), 1),
			of(strings.Repeat("k", 1025), manyAMinute, 1),
			{Key: "k", Algorithm: manyAMinute, Op: driver.OpForce, N: 1},
			{Key: "k", Algorithm: manyAMinute, Op: driver.OpPeek, N: 1},
			{Key: "k", Algorithm: manyAMinute, Op: driver.OpTake, N: 2, Least: 1},
			{Key: "k", Algorithm: budget, Op: driver.OpHold, N: 1, ID: 1},
			{Key: "k", Algorithm: budget, Op: driver.OpPeek, N: 1, ID: 1},
			{Key: "k", Algorithm: budget, Op: driver.OpSettle, N: 1, ID: 1},
		} {
			for range 300 {
				time.Sleep(time.Millisecond)
				take(t, s, d)
				if got := inner.reached(); !slices.Equal(got, []driver.Demand{d}) {
					t.Fatalf("%+v: the store inside got %+v", d, got)
				}
			}
		}
		if stats := s.Stats(); stats != (layer.LeasedStats{}) {
			t.Errorf("%+v", stats)
		}
		for _, d := range []driver.Demand{{}, of("", manyAMinute, 1), of("k", manyAMinute, 0)} {
			for range 20 { // often enough to be hot
				if _, err := s.Take(t.Context(), d); !errors.Is(err, driver.ErrInvalid) {
					t.Errorf("%+v: %v", d, err)
				}
			}
		}
	})
}

// TestLeasedInvalid: demands on a key with leases are checked as the store inside checks them.
func TestLeasedInvalid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &demands{Store: newOutage(t)}
		s, d := newLeased(t, inner, nil), of("k", manyAMinute, 1)
		warm(t, s, d)
		inner.reached()
		for name, tt := range map[string]struct {
			ds   []driver.Demand
			room int
			err  error
		}{
			"no units":  {[]driver.Demand{of("k", manyAMinute, 0)}, 1, driver.ErrInvalid},
			"too many":  {[]driver.Demand{of("k", manyAMinute, 60_001)}, 1, driver.ErrExceedsLimit},
			"twice":     {[]driver.Demand{d, d}, 2, driver.ErrInvalid},
			"no room":   {[]driver.Demand{d, of("l", manyAMinute, 1)}, 1, driver.ErrInvalid},
			"no result": {[]driver.Demand{d}, 0, driver.ErrInvalid},
		} {
			if err := s.TakeAll(t.Context(), tt.ds, make([]driver.Result, tt.room)); !errors.Is(
				err, tt.err) {
				t.Errorf("%s: %v", name, err)
			}
			if len(tt.ds) == 1 && tt.room == 1 {
				if _, err := s.Take(t.Context(), tt.ds[0]); !errors.Is(err, tt.err) {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Take(ended, d); !errors.Is(err, context.Canceled) ||
			!errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("after the context has ended: %v", err)
		}
		if got := inner.reached(); len(got) > 0 {
			t.Errorf("the store inside got %+v", got)
		}
		for name, opts := range map[string]layer.LeasedOptions{
			"negative Lead": {Lead: -1}, "negative MaxKeys": {MaxKeys: -1},
		} {
			if _, err := layer.NewLeased(inner, &opts); !errors.Is(err, driver.ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := layer.NewLeased(nil, nil); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("no store: %v", err)
		}
	})
}

// TestLeasedKeepsNoKey: the layer copies the keys that it keeps.
func TestLeasedKeepsNoKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &demands{Store: newOutage(t)}
		s, key := newLeased(t, inner, nil), []byte("caller's")
		warm(t, s, of(unsafe.String(&key[0], len(key)), manyAMinute, 1))
		copy(key, "another ")
		inner.reached()
		for range 2000 {
			time.Sleep(time.Millisecond)
			take(t, s, of("caller's", manyAMinute, 1))
			synctest.Wait()
		}
		for _, d := range inner.reached() {
			if d.Key != "caller's" {
				t.Fatalf("the store inside got %q", d.Key)
			}
		}
		if stats := s.Stats(); stats.Keys != 1 {
			t.Errorf("%+v", stats)
		}
	})
}

// TestLeasedOtherLimit: leases belong to a limit with its parameters, so a lower one is in force at
// once.
func TestLeasedOtherLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &demands{Store: newOutage(t)}
		s := newLeased(t, inner, nil)
		warm(t, s, of("k", manyAMinute, 1))
		inner.reached()
		lower := algorithm.SlidingLog(driver.PerMinute("many", 1000))
		d := of("k", lower, 1)
		res := take(t, s, d)
		if res.Source != driver.SourceStore || res.Limit.Max != 1000 {
			t.Errorf("%+v", res)
		}
		if got := inner.reached(); !slices.Equal(got, []driver.Demand{d}) {
			t.Errorf("the store inside got %+v", got)
		}
	})
}

// TestLeasedNumbers: what results say of a key with leases.
func TestLeasedNumbers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &demands{Store: newOutage(t)}
		s, d := newLeased(t, inner, nil), of("k", manyAMinute, 1)
		warm(t, s, d)
		peek := d
		peek.Op = driver.OpPeek
		first := take(t, s, peek)
		res := take(t, s, d)
		second := take(t, s, peek)
		if first.Source != driver.SourceLease || !first.Allowed || first.Units != 0 ||
			res.Source != driver.SourceLease || res.Remaining != first.Remaining-1 ||
			second.Remaining != res.Remaining || res.ResetAfter > time.Minute+time.Second {
			t.Errorf("a peek %+v, a take %+v, a peek %+v", first, res, second)
		}
		all := d
		all.N, all.Least = 60_000, 1
		take(t, s, all)
		for take(t, s, d).Allowed {
		}
		synctest.Wait()
		inner.reached()
		began := time.Now()
		refused := take(t, s, d)
		if refused.Source != driver.SourceLease || refused.Allowed || refused.Remaining != 0 ||
			refused.RetryAfter <= 0 || refused.ResetAfter < refused.RetryAfter ||
			refused.RetryAfter%time.Microsecond != 0 {
			t.Errorf("refused: %+v", refused)
		}
		if res := take(t, s, peek); res != refused {
			t.Errorf("a peek %+v after the refusal %+v", res, refused)
		}
		if got := inner.reached(); len(got) > 0 {
			t.Errorf("the store inside got %+v", got)
		}
		for len(inner.reached()) == 0 {
			time.Sleep(time.Millisecond)
			take(t, s, d)
		}
		if asked := time.Since(began); asked > 700*time.Millisecond {
			t.Errorf("the store was asked again after %v, more than 9/8 of a lead", asked)
		}
	})
}

// TestLeasedAheadOfCaller: a caller who takes units ahead himself uses them later than a lease
// lasts, so the store inside decides with his lead.
func TestLeasedAheadOfCaller(t *testing.T) {
	const lead = 10 * time.Second
	bucket := algorithm.GCRA(driver.PerMinute("many", 60_000))
	for name, plain := range map[string]driver.Ahead{"log": manyAMinute, "bucket": bucket,
		"budget": algorithm.Budget(manyAMinute)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := &demands{Store: newOutage(t)}
				s, d := newLeased(t, inner, nil), of("k", plain.Ahead(lead), 1)
				for range 1000 {
					time.Sleep(time.Millisecond)
					if res := take(t, s, d); res.Source != driver.SourceStore {
						t.Fatalf("%+v", res)
					}
					for _, got := range inner.reached() {
						if got != d {
							t.Fatalf("the store inside got %+v", got)
						}
					}
				}
			})
		})
	}
}

// TestLeasedMuch: the units of a demand with those ahead are never more than a store accepts, also
// if Resets let a process use many times Max in a Window.
func TestLeasedMuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLeased(t, newOutage(t), nil)
		most := algorithm.SlidingLog(driver.PerMinute("most", driver.MaxUnits))
		d := of("k", most, driver.MaxUnits)
		for range 200 {
			time.Sleep(time.Millisecond)
			d.Op = driver.OpTake
			take(t, s, d)
			d.Op = driver.OpReset
			take(t, s, d)
		}
		take(t, s, of("k", most, driver.MaxUnits/2))
	})
}

// TestLeasedRemaining: an answer from before a lease does not make more units free than the limit
// has.
func TestLeasedRemaining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outage := newOutage(t)
		inner := &demands{Store: outage}
		s, d := newLeased(t, inner, nil), of("k", roomy, 1)
		for range 30_000 {
			time.Sleep(time.Millisecond)
			take(t, s, d)
			synctest.Wait()
		}
		reset, peek := d, d
		reset.Op, peek.Op = driver.OpReset, driver.OpPeek
		take(t, s, reset)
		inner.answers(func(d driver.Demand) (driver.Result, error) {
			res, err := outage.Take(context.Background(), d)
			if d.Op == driver.OpPeek {
				time.Sleep(time.Millisecond)
			}
			return res, err
		})
		go func() { take(t, s, peek) }()
		synctest.Wait()
		take(t, s, d) // with units ahead
		time.Sleep(2 * time.Millisecond)
		if res := take(t, s, d); res.Remaining+res.Units > roomy.Limit().Max ||
			res.ResetAfter == 0 {
			t.Errorf("%+v", res)
		}
	})
}
