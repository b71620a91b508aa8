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
		algorithms = append(algorithms, algorithm.SlidingLog(l))
	}
	l, err := ratelimit.New(s, algorithms...)
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
		t.Fatalf("%+v, %v; want %d units from %v", r, err, n, source)
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
// under two limits too. If the store recovers before, the estimate stays charged.
func TestDegradedReservation(t *testing.T) {
	for _, tt := range []struct {
		name  string
		limit []driver.Limit
		back  bool // the store has recovered when the reservation is settled
		used  int64
		want  int64
	}{
		{"less, away", []driver.Limit{driver.PerMinute("tokens", 100)}, false, 10, 10},
		{"more, away", []driver.Limit{driver.PerMinute("tokens", 100)}, false, 50, 50},
		{"two limits, less, away", []driver.Limit{driver.PerMinute("tokens", 100),
			driver.PerHour("hourly", 200)}, false, 10, 10},
		{"two limits, more, away", []driver.Limit{driver.PerMinute("tokens", 100),
			driver.PerHour("hourly", 200)}, false, 50, 50},
		{"less, back", []driver.Limit{driver.PerMinute("tokens", 100)}, true, 10, 40},
		{"more, back", []driver.Limit{driver.PerMinute("tokens", 100)}, true, 50, 50},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newOutage(t)
				s := newDegraded(t, store, &layer.DegradedOptions{Instances: 2})
				tokens := newTokens(t, s, tt.limit...)
				store.mode.Store(gone)
				r := reserve(t, tokens, 40, driver.SourceLocal)
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
				if got := charged(t, store); got != tt.want {
					t.Errorf("%d units are charged in the store, want %d", got, tt.want)
				}
			})
		})
	}
}

// TestDegradedSettlesStoreReservation: what the store has admitted is not given back locally, where
// a local record may have the same stamp. It can be settled when the store has recovered.
func TestDegradedSettlesStoreReservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newOutage(t)
		s := newDegraded(t, store, &layer.DegradedOptions{Instances: 1})
		tokens := newTokens(t, s, driver.PerMinute("tokens", 100))
		before := reserve(t, tokens, 40, driver.SourceStore)
		store.mode.Store(gone)
		time.Sleep(10 * time.Second)
		reserve(t, tokens, 40, driver.SourceLocal)
		for range 2 {
			err := before.Cancel(t.Context())
			if !errors.Is(err, driver.ErrUnavailable) ||
				errors.Is(err, driver.ErrOutcomeUnknown) {
				t.Errorf("%v, want %v", err, driver.ErrUnavailable)
			}
		}
		store.mode.Store(up)
		time.Sleep(time.Second)
		if got := charged(t, store); got != 80 {
			t.Errorf("%d units are charged, want 40 of the store and 40 admitted locally", got)
		}
		if err := before.Cancel(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(50 * time.Second) // the first would have left the window
		if got := charged(t, store); got != 40 {
			t.Errorf("%d units are charged, want the 40 that were admitted locally", got)
		}
	})
}

// TestDegradedGivesBackNothingRecorded: units that were admitted locally and recorded since are not
// given back to a record that another process made at the same instant.
func TestDegradedGivesBackNothingRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newOutage(t)
		s := newDegraded(t, store, &layer.DegradedOptions{Instances: 2})
		store.mode.Store(gone)
		local := reserve(t, newTokens(t, s, driver.PerMinute("tokens", 100)), 40,
			driver.SourceLocal)
		reserve(t, newTokens(t, store.Store, driver.PerMinute("tokens", 100)), 40,
			driver.SourceStore) // for which the store is there
		text, err := local.Token()
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		store.mode.Store(up)
		time.Sleep(time.Second)
		for name, over := range map[string]driver.Store{"this process": s, "another": store} {
			tokens := newTokens(t, over, driver.PerMinute("tokens", 100))
			resumed, err := ratelimit.Resume(text, tokens)
			if err != nil {
				t.Fatal(err)
			}
			if err := resumed.Cancel(t.Context()); err != nil {
				t.Error(err)
			}
			if got := charged(t, store); got != 80 {
				t.Errorf("after a settlement by %s %d units are charged, want 80", name, got)
			}
		}
	})
}
