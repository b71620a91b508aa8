package budgetmodel_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/testkit/budgetmodel"
)

// A fault changes the demands of calls of nothing but holds and settlements.
type fault func(s *faulty, d *driver.Demand)

var faults = map[string]fault{
	"a settlement counts twice": func(s *faulty, d *driver.Demand) {
		if d.Op == driver.OpSettle && s.hold(*d) > 0 {
			d.N *= 2
		}
	},
	"a settlement is lost": func(s *faulty, d *driver.Demand) {
		if d.Op == driver.OpSettle && rand.IntN(4) == 0 {
			d.N = 0
		}
	},
	"a settlement is for the estimate": func(s *faulty, d *driver.Demand) {
		if d.Op == driver.OpSettle && d.N > 0 {
			d.N = max(d.N, s.hold(*d))
		}
	},
	"excess is dropped": func(s *faulty, d *driver.Demand) {
		if d.Op == driver.OpSettle {
			d.N = min(d.N, s.hold(*d))
		}
	},
	"a canceled hold stays": func(s *faulty, d *driver.Demand) {
		if d.Op == driver.OpSettle && d.N == 0 {
			d.Op = driver.OpPeek
		}
	},
	"an extension holds too little": func(s *faulty, d *driver.Demand) {
		if held := s.hold(*d); d.Op == driver.OpHold && held > 0 && d.N > held {
			d.N = held
		}
	},
}

// Faults that show only if time passes.
var timed = map[string]fault{
	"a hold times out although it is renewed": func(_ *faulty, d *driver.Demand) {
		if d.Op == driver.OpHold && d.N == 0 {
			d.ID++
		}
	},
	"a hold lasts too long": func(_ *faulty, d *driver.Demand) {
		if d.Op == driver.OpHold && d.HoldTimeout == 0 {
			d.HoldTimeout = 2 * d.Algorithm.(driver.Holder).HoldTimeout()
		}
	},
	"units count from the settlement": func(s *faulty, d *driver.Demand) {
		if d.Op == driver.OpSettle && d.N > 0 {
			s.again = append(s.again, *d)
			d.N = 0
		}
	},
}

// faulty is a store with a fault.
type faulty struct {
	driver.Store
	fault fault

	mu    sync.Mutex
	held  map[hold]int64
	again []driver.Demand // settlements that are recorded as forced units
}

type hold struct {
	id    uint64
	limit string
}

func (s *faulty) hold(d driver.Demand) int64 { return s.held[hold{d.ID, d.Algorithm.Limit().Name}] }

func (s *faulty) Take(ctx context.Context, d driver.Demand) (driver.Result, error) {
	out := make([]driver.Result, 1)
	err := s.TakeAll(ctx, []driver.Demand{d}, out)
	return out[0], err
}

func (s *faulty) TakeAll(ctx context.Context, ds []driver.Demand, out []driver.Result) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := ds
	ds, s.again = slices.Clone(ds), nil
	for i := range ds {
		s.fault(s, &ds[i])
		if ds[i].Op == driver.OpPeek {
			ds[i].N = max(1, ds[i].N)
		}
	}
	err := s.Store.TakeAll(ctx, ds, out)
	for i, d := range asked {
		if err == nil && out[i].Allowed && d.Op == driver.OpHold && d.N > 0 {
			s.held[hold{d.ID, d.Algorithm.Limit().Name}] = d.N
		}
		if d.Op == driver.OpSettle {
			known := s.hold(d) > 0
			delete(s.held, hold{d.ID, d.Algorithm.Limit().Name})
			if ds[i] != d && known && !d.Algorithm.(driver.Holder).InFlight() {
				out[i].Units = d.N
			}
		}
	}
	for _, d := range s.again {
		d.Op = driver.OpForce
		if _, err := s.Store.Take(ctx, d); err != nil {
			return err
		}
	}
	return err
}

var limits = budgetmodel.Limits{
	Requests: driver.PerMinute("requests", 20),
	Tokens:   driver.PerMinute("tokens", 100),
	Hourly:   driver.PerHour("hourly", 1000),
	Money:    driver.PerDay("money", 2000),
	Calls:    5,
	Timeout:  2 * time.Minute,
}

// play plays up to 20 histories on a store with a fault, and returns the first difference.
func play(t *testing.T, f fault) (err error) {
	for seed := uint64(0); seed < 20 && err == nil; seed++ {
		synctest.Test(t, func(t *testing.T) {
			memory, newErr := memorystore.New(nil)
			if newErr != nil {
				t.Fatal(newErr)
			}
			defer memory.Close()
			store := &faulty{Store: memory, fault: f, held: make(map[hold]int64)}
			client := budgetmodel.NewClient(t, store, limits)
			other := budgetmodel.NewClient(t, store, limits)
			err = budgetmodel.Play(t.Context(), seed, "key", budgetmodel.SyntheticClock, 80,
				client, other)
		})
	}
	return err
}

// TestPlayFindsFaults plants faults, of which each must show as a difference from the model.
func TestPlayFindsFaults(t *testing.T) {
	none := func(*faulty, *driver.Demand) {}
	if err := play(t, none); err != nil {
		t.Fatalf("without a fault: %v", err)
	}
	for _, set := range []map[string]fault{faults, timed} {
		for name, f := range set {
			t.Run(name, func(t *testing.T) {
				if play(t, f) == nil {
					t.Error("no difference from the model")
				}
			})
		}
	}
}

// TestStormFindsFaults plants the faults that show without time in storms.
func TestStormFindsFaults(t *testing.T) {
	if err := storms(t, func(*faulty, *driver.Demand) {}); err != nil {
		t.Fatalf("without a fault: %v", err)
	}
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			if storms(t, f) == nil {
				t.Error("no storm has found it")
			}
		})
	}
}

func storms(t *testing.T, f fault) (err error) {
	slow := limits
	slow.Requests.Window, slow.Tokens.Window = time.Hour, time.Hour
	for seed := uint64(0); seed < 10 && err == nil; seed++ {
		memory, newErr := memorystore.New(nil)
		if newErr != nil {
			t.Fatal(newErr)
		}
		defer memory.Close()
		store := &faulty{Store: memory, fault: f, held: make(map[hold]int64)}
		storm := budgetmodel.Storm{Key: "key", Workers: 4, Seed: seed}
		for range 2 {
			storm.Clients = append(storm.Clients, budgetmodel.NewClient(t, store, slow))
		}
		err = errors.Join(storm.Round(30), storm.Settle(), storm.Check(t.Context(), store, false))
	}
	return err
}
