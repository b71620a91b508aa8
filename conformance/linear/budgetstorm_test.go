package linear

import (
	"context"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"testing"
	"time"

	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/testkit/budgetmodel"
)

// lossy is a store that is unavailable for some calls, and loses the answers to others, before or
// after they were recorded.
type lossy struct {
	driver.Store
	lost atomic.Int64
}

func (s *lossy) Take(ctx context.Context, d driver.Demand) (driver.Result, error) {
	out := make([]driver.Result, 1)
	err := s.TakeAll(ctx, []driver.Demand{d}, out)
	return out[0], err
}

func (s *lossy) TakeAll(ctx context.Context, ds []driver.Demand, out []driver.Result) error {
	fate := rand.IntN(10)
	switch fate {
	case 0:
		return driver.ErrUnavailable
	case 1:
		s.lost.Add(1)
		return driver.ErrOutcomeUnknown
	}
	if err := s.Store.TakeAll(ctx, ds, out); err != nil {
		return err
	}
	if fate == 2 {
		s.lost.Add(1)
		return driver.ErrOutcomeUnknown
	}
	return nil
}

// TestBudgetStorm: while contexts end, answers get lost and the store is unavailable at random, no
// more is admitted than the limits have, and in the end what is charged is no less than what is
// certain and no more than what is possible. RATELIMIT_FULL=1 makes 2,000 storms.
func TestBudgetStorm(t *testing.T) {
	storms := uint64(20)
	if os.Getenv("RATELIMIT_FULL") != "" {
		storms = 2000
	}
	var lost, unknown int64
	for seed := range storms {
		memory, err := memorystore.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		stores := []*lossy{{Store: memory}, {Store: memory}}
		storm := budgetmodel.Storm{
			Key: "tenant", Workers: 16, Seed: seed, MayFail: true,
			Patience: func(r *rand.Rand) time.Duration {
				return time.Duration(r.Int64N(int64(2 * time.Millisecond)))
			},
		}
		for _, s := range stores {
			storm.Clients = append(storm.Clients, budgetmodel.NewClient(t, s, hourly))
		}
		storm.Round(t, 20)
		books := storm.Settle(t)
		storm.Check(t, memory, books)
		for _, b := range books {
			unknown += int64(b.Unknown)
		}
		for _, s := range stores {
			lost += s.lost.Load()
		}
		if err := memory.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if unknown == 0 {
		t.Error("no outcome was unknown: this test proves nothing")
	}
	t.Logf("%d storms, %d answers lost, %d outcomes unknown", storms, lost, unknown)
}

// hourly limits have windows that are longer than the test.
var hourly = budgetmodel.Limits{
	Requests:  driver.PerHour("requests", 40),
	Tokens:    driver.PerHour("tokens", 300),
	AllTokens: driver.PerDay("daily", 1500),
	Calls:     driver.PerHour("calls", 4),
}
