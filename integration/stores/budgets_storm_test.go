package stores

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
	"github.com/truewindow/ratelimit/internal/testkit/budgetmodel"
)

// TestBudgetStorm: with contexts that end and answers that get lost at random, no more is held and
// recorded than the limits allow, and in the end exactly what was used is recorded under each
// budget, although every settlement is repeated. The end is after the time-out, since a hold whose
// answer is lost may arrive after its own settlement.
func TestBudgetStorm(t *testing.T) {
	storms := 2
	if servers.Full {
		storms = 100
	}
	servers.EachServer(t, func(t *testing.T, tgt *servers.Target) {
		clients.Each(t, func(t *testing.T, lib clients.Library) {
			calm := clients.CalmStore(t, tgt, nil)
			var c clients.Cutter
			var all []*budgetmodel.Storm
			unknown := 0
			for seed := range storms {
				storm := budgetStorm(t, tgt, lib, &c, uint64(seed))
				unknown += storm.Unknown()
				all = append(all, storm)
			}
			if c.Cut.Load() == 0 {
				t.Error("no answer was lost: this test proves nothing")
			}
			for _, storm := range all {
				servers.Within(t, func() bool {
					return storm.Check(t.Context(), calm, true) == nil
				}, "more is charged than was used, after the time-out of holds of unknown outcome")
			}
			servers.Measured("%s: %d storms, %d answers lost, %d outcomes unknown",
				t.Name(), storms, c.Cut.Load(), unknown)
		})
	})
}

// budgetStorm makes calls from two clients while c loses some answers.
func budgetStorm(
	t *testing.T, tgt *servers.Target, lib clients.Library, c *clients.Cutter, seed uint64,
) *budgetmodel.Storm {
	t.Helper()
	limits := budgetLimits
	limits.Timeout = 5 * time.Second
	storm := &budgetmodel.Storm{
		Key: servers.FreshKey(t), Workers: 16, Seed: seed, MayFail: true,
		Patience: func(r *rand.Rand) time.Duration {
			return time.Duration(r.Int64N(int64(10 * time.Millisecond)))
		},
	}
	for range 2 {
		dialing := clients.To(tgt)
		dialing.Dial = c.Dial
		store := lib.Client(t, dialing).
			NewStore(t, &serverstore.Options{Timeout: clients.Patient})
		storm.Clients = append(storm.Clients, budgetmodel.NewClient(t, store, limits))
	}
	c.On.Store(true)
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-done:
				c.On.Store(false)
				return
			case <-tick.C:
				c.On.Store(i%4 == 3)
			}
		}
	})
	err := errors.Join(storm.Round(15), storm.Settle())
	close(done)
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return storm
}
