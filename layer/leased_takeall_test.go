package layer_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

// TestLeasedPutBack: units that are put aside do not go into a lease that ends later.
func TestLeasedPutBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outage := newOutage(t)
		inner := &demands{Store: outage}
		s, hot := newLeased(t, inner, nil), of("k", manyAMinute, 1)
		warm(t, s, hot)
		inner.answers(func(d driver.Demand) (driver.Result, error) {
			if d.Algorithm == driver.Algorithm(eight) {
				time.Sleep(time.Second)
				return driver.Result{Limit: eight.Limit(), RetryAfter: time.Second}, nil
			}
			return outage.Take(context.Background(), d)
		})
		out := make([]driver.Result, 2)
		done := make(chan error)
		go func() {
			done <- s.TakeAll(context.Background(), []driver.Demand{hot, of("k", eight, 1)}, out)
		}()
		for range 900 {
			time.Sleep(time.Millisecond)
			take(t, s, hot)
			synctest.Wait()
		}
		warm(t, s, hot)
		before, _ := s.LeaseOf("k", manyAMinute)
		lost := s.Stats().Lost
		if err := <-done; err != nil || !out[0].Allowed || out[0].Units != 0 || out[1].Allowed {
			t.Errorf("%+v, %v", out, err)
		}
		if after, _ := s.LeaseOf("k", manyAMinute); after > before || s.Stats().Lost == lost {
			t.Errorf("%d units before, %d after", before, after)
		}
	})
}

// TestLeasedTakeAll: a call asks the store inside only for what has no leases, and takes all units
// or none.
func TestLeasedTakeAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &demands{Store: newOutage(t)}
		s := newLeased(t, inner, nil)
		hot, other := of("k", manyAMinute, 1), of("other", manyAMinute, 1)
		few := algorithm.SlidingLog(driver.PerMinute("few", 2))
		block := algorithm.Blocking("block", time.Hour)
		ds := []driver.Demand{of("k", block, 1), hot, of("k", few, 1)}
		out := make([]driver.Result, 3)
		warm(t, s, hot)
		units := func(d driver.Demand) int64 {
			n, _ := s.LeaseOf(d.Key, manyAMinute)
			return n
		}
		for i, want := range []bool{true, true, false, false} {
			inner.reached()
			before := units(hot)
			if err := s.TakeAll(t.Context(), ds, out); err != nil {
				t.Fatal(err)
			}
			if got := inner.asked(); !slices.Equal(got, []driver.Demand{ds[0], ds[2]}) {
				t.Errorf("the store inside got %+v", got)
			}
			taken := int64(0)
			if want {
				taken = 1
			}
			if out[0].Source != driver.SourceStore || !out[0].Allowed ||
				out[1].Source != driver.SourceLease || !out[1].Allowed || out[1].Units != taken ||
				out[2].Source != driver.SourceStore || out[2].Allowed != want {
				t.Errorf("call %d: %+v", i, out)
			}
			if got := before - units(hot); got != taken {
				t.Errorf("call %d took %d units, want %d", i, got, taken)
			}
		}

		// All from leases: no call.
		warm(t, s, other)
		warm(t, s, hot)
		inner.reached()
		both := []driver.Demand{hot, other}
		if err := s.TakeAll(t.Context(), both, out[:2]); err != nil {
			t.Fatal(err)
		}
		if got := inner.asked(); len(got) > 0 || out[0].Units != 1 || out[1].Units != 1 {
			t.Errorf("%+v; the store inside got %+v", out[:2], got)
		}

		// One is refused, so neither is taken.
		all := hot
		all.N, all.Least = 60_000, 1
		take(t, s, all)
		for take(t, s, hot).Allowed {
		}
		inner.reached()
		before := units(other)
		if err := s.TakeAll(t.Context(), both, out[:2]); err != nil {
			t.Fatal(err)
		}
		if out[0].Allowed || out[0].RetryAfter <= 0 || !out[1].Allowed || out[1].Units != 0 ||
			units(other) != before {
			t.Errorf("%+v, and %d units are left of %d", out[:2], units(other), before)
		}
		if got := inner.asked(); len(got) > 0 {
			t.Errorf("the store inside got %+v", got)
		}
		// With one that has no lease, the store decides all.
		ds = []driver.Demand{hot, other, of("k", few, 1)}
		if err := s.TakeAll(t.Context(), ds, out); err != nil || out[0].Allowed ||
			out[1].Source != driver.SourceStore || units(other) != before {
			t.Errorf("%+v, %v", out, err)
		}
		if got := inner.asked(); !slices.Equal(got, ds) {
			t.Errorf("the store inside got %+v", got)
		}
	})
}

// TestLeasedTakeAllFails: if the store inside does not decide the rest, units go back into their
// lease, or are lost if the outcome is unknown.
func TestLeasedTakeAllFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &demands{Store: newOutage(t)}
		s, hot := newLeased(t, inner, nil), of("k", manyAMinute, 1)
		ds := []driver.Demand{hot, of("k", eight, 1)}
		warm(t, s, hot)
		for name, tt := range map[string]struct {
			answer func(driver.Demand) (driver.Result, error)
			lost   int64
		}{
			"unavailable": {func(driver.Demand) (driver.Result, error) {
				return driver.Result{}, driver.ErrUnavailable
			}, 0},
			"unknown": {func(driver.Demand) (driver.Result, error) {
				return driver.Result{}, driver.ErrOutcomeUnknown
			}, 1},
			"panic": {func(driver.Demand) (driver.Result, error) { panic("planted") }, 1},
		} {
			before, _ := s.LeaseOf("k", manyAMinute)
			lost := s.Stats().Lost
			inner.answers(tt.answer)
			func() {
				defer func() { _ = recover() }()
				if err := s.TakeAll(t.Context(), ds, make([]driver.Result, 2)); err == nil {
					t.Errorf("%s: no error", name)
				}
			}()
			inner.answers(nil)
			after, _ := s.LeaseOf("k", manyAMinute)
			if before-after != tt.lost || s.Stats().Lost-lost != tt.lost {
				t.Errorf("%s: %d units before, %d after, %d lost", name, before, after,
					s.Stats().Lost-lost)
			}
		}
	})
}

// TestLeasedAside: units that are put aside for a TakeAll count as what the process has ahead.
func TestLeasedAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := newOutage(t)
		slow := &demands{Store: inner}
		s, hot := newLeased(t, slow, nil), of("k", roomy, 1)
		for range 60_000 {
			time.Sleep(time.Millisecond)
			take(t, s, hot)
		}
		slow.answers(func(d driver.Demand) (driver.Result, error) {
			if d.Algorithm != driver.Algorithm(eight) {
				return inner.Take(context.Background(), d)
			}
			time.Sleep(3 * time.Second)
			return driver.Result{}, driver.ErrOutcomeUnknown
		})
		before := s.Stats()
		for range 1500 {
			time.Sleep(time.Millisecond)
			go func() {
				_ = s.TakeAll(context.Background(), []driver.Demand{hot, of("k", eight, 1)},
					make([]driver.Result, 2))
			}()
			take(t, s, hot)
		}
		synctest.Wait()
		after := s.Stats()
		unused := after.Taken - before.Taken - (after.Admitted - before.Admitted)
		if unused > 60_000/100 { // of the use within a Window: Loss less the part that is the lead
			t.Errorf("%d units were taken ahead that nobody has used", unused)
		}
		time.Sleep(5 * time.Second)
	})
}

// TestLeasedSlots: where the store inside cannot decide several keys together, as on a Redis
// Cluster, a call still can while leases have units for all but one.
func TestLeasedSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLeased(t, apart{newOutage(t)}, nil)
		hot, cold, other := of("k", manyAMinute, 1), of("cold", eight, 1), of("other", eight, 1)
		for range 20_000 {
			time.Sleep(time.Millisecond)
			take(t, s, hot)
			synctest.Wait()
		}
		warm(t, s, hot)
		out := make([]driver.Result, 3)
		for i := range 10 {
			if err := s.TakeAll(t.Context(), []driver.Demand{hot, cold}, out[:2]); err != nil ||
				!out[0].Allowed || out[1].Allowed != (i < 8) {
				t.Errorf("call %d: %+v, %v", i, out[:2], err)
			}
			synctest.Wait()
		}
		before, _ := s.LeaseOf("k", manyAMinute)
		if err := s.TakeAll(t.Context(), []driver.Demand{hot, cold, other}, out); !errors.Is(err,
			errors.ErrUnsupported) {
			t.Errorf("two cold keys: %v", err)
		}
		if after, _ := s.LeaseOf("k", manyAMinute); after != before {
			t.Errorf("%d units before, %d after", before, after)
		}
	})
}

// apart is a store that cannot decide several keys together.
type apart struct{ driver.Store }

func (s apart) TakeAll(ctx context.Context, ds []driver.Demand, out []driver.Result) error {
	for _, d := range ds {
		if d.Key != ds[0].Key {
			return errors.ErrUnsupported
		}
	}
	return s.Store.TakeAll(ctx, ds, out)
}
