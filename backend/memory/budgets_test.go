package memorystore_test

import (
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/testkit/budgetmodel"
)

// TestBudgetHistories: after random claims, reservations and leases of two clients, while units
// leave their windows, the store holds what the model does. RATELIMIT_FULL=1 plays 10,000
// histories.
func TestBudgetHistories(t *testing.T) {
	histories := uint64(100)
	if os.Getenv("RATELIMIT_FULL") != "" {
		histories = 10_000
	}
	for seed := range histories {
		var now atomic.Int64
		now.Store(1_800_000_000_000_000)
		clock := budgetmodel.Clock{
			Now:     now.Load,
			Advance: func(d time.Duration) { now.Add(d.Microseconds()) },
		}
		store, err := memorystore.New(&memorystore.Options{Now: clock.Now})
		if err != nil {
			t.Fatal(err)
		}
		budgetmodel.Play(t, seed, fmt.Sprint("key", seed), clock, 60,
			budgetmodel.NewClient(t, store, budgetLimits),
			budgetmodel.NewClient(t, store, budgetLimits))
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

var budgetLimits = budgetmodel.Limits{
	Requests:  driver.PerMinute("requests", 20),
	Tokens:    driver.PerMinute("tokens", 100),
	AllTokens: driver.PerHour("hourly", 1000),
	Calls:     driver.Limit{Name: "calls", Max: 5, Window: 10 * time.Minute},
}
