package linear

import (
	"math/rand/v2"
	"os"
	"sync/atomic"
	"testing"
	"time"

	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/testkit/budgetmodel"
)

// TestBudgetsAtOnce: the calls that several goroutines of two clients make for their reservations
// and leases at once are linearizable on the memory store, and what is charged in the end is the
// sum of what was settled. In half of the histories units leave their windows. RATELIMIT_FULL=1
// makes 2,000 histories.
func TestBudgetsAtOnce(t *testing.T) {
	histories := uint64(40)
	if os.Getenv("RATELIMIT_FULL") != "" {
		histories = 2000
	}
	operations := 0
	for seed := range histories {
		r := rand.New(rand.NewPCG(seed, 0))
		var clock atomic.Int64
		clock.Store(now)
		store, err := memorystore.New(&memorystore.Options{Now: clock.Load})
		if err != nil {
			t.Fatal(err)
		}
		recorder := budgetmodel.NewRecorder(clock.Load)
		recorded := recorder.Store(0, store)
		storm := budgetmodel.Storm{
			Key: "tenant", Workers: 6, Seed: seed, Forgets: seed%2 == 1,
			Clients: []budgetmodel.Client{
				budgetmodel.NewClient(t, recorded, budgetLimits),
				budgetmodel.NewClient(t, recorded, budgetLimits),
			},
		}
		pause := int64(time.Second)
		if storm.Forgets {
			pause = int64(time.Minute) / 4
		}
		for range 12 {
			storm.Round(t, 3)
			clock.Add(time.Duration(r.Int64N(pause)).Microseconds())
		}
		books := storm.Settle(t)
		if !storm.Forgets {
			storm.Check(t, store, books)
		}
		history := recorder.History()
		operations += len(history)
		if err := Check(history); err != nil {
			t.Errorf("seed %d: %d operations: %v", seed, len(history), err)
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d histories, %d operations", histories, operations)
}

var budgetLimits = budgetmodel.Limits{
	Requests:  driver.PerMinute("requests", 40),
	Tokens:    driver.PerMinute("tokens", 300),
	AllTokens: driver.PerHour("hourly", 1500),
	Calls:     driver.PerMinute("calls", 4),
}
