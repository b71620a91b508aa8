package stores

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
	"github.com/truewindow/ratelimit/internal/testkit/budgetmodel"
)

// TestBudgetStorm: with contexts that end and answers that get lost at random, no more is admitted
// than the limits allow, and in the end at least the certain units are charged and at most the
// possible ones.
func TestBudgetStorm(t *testing.T) {
	storms := 2
	if servers.Full {
		storms = 100
	}
	servers.EachServer(t, func(t *testing.T, tgt *servers.Target) {
		clients.Each(t, func(t *testing.T, lib clients.Library) {
			calm := clients.CalmStore(t, tgt, nil)
			var c clients.Cutter
			unknown := 0
			for seed := range storms {
				books := budgetStorm(t, tgt, lib, &c, uint64(seed))
				for _, b := range books.known {
					unknown += b.Unknown
				}
				books.storm.Check(t, calm, books.known)
			}
			if c.Cut.Load() == 0 {
				t.Error("no answer was lost: this test proves nothing")
			}
			servers.Measured("%s: %d storms, %d answers lost, %d outcomes unknown",
				t.Name(), storms, c.Cut.Load(), unknown)
		})
	})
}

// stormBooks is the result of a storm.
type stormBooks struct {
	storm *budgetmodel.Storm
	known []budgetmodel.Books
}

// budgetStorm makes calls from two clients while c loses some answers.
func budgetStorm(
	t *testing.T, tgt *servers.Target, lib clients.Library, c *clients.Cutter, seed uint64,
) stormBooks {
	t.Helper()
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
		storm.Clients = append(storm.Clients, budgetmodel.NewClient(t, store, budgetLimits))
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
	storm.Round(t, 15)
	known := storm.Settle(t)
	close(done)
	wg.Wait()
	return stormBooks{storm, known}
}
