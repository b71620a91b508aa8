package linear

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/testkit/budgetmodel"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
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
// more is held and recorded than the limits have, and in the end exactly what was used is recorded
// under each budget, although every settlement is repeated. Under FailOpen it may be less.
func TestBudgetStorm(t *testing.T) {
	storms := depth.Of[uint64](20, 2000)
	var lost int64
	unknown := 0
	for seed := range storms {
		var ahead atomic.Int64
		memory, err := memorystore.New(&memorystore.Options{
			Now: func() int64 { return time.Now().UnixMicro() + ahead.Load() },
		})
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
			client := budgetmodel.NewClient(t, s, hourly)
			if seed%4 == 3 {
				client = client.WithPolicy(ratelimit.FailOpen)
			}
			storm.Clients = append(storm.Clients, client)
		}
		if err := errors.Join(storm.Round(20), storm.Settle(),
			storm.Check(t.Context(), memory, false)); err != nil {
			t.Fatal(err)
		}
		ahead.Add((2 * hourly.Timeout).Microseconds())
		if err := storm.Check(t.Context(), memory, true); err != nil {
			t.Fatal(err)
		}
		unknown += storm.Unknown()
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
