package memorystore_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/testkit/budgetmodel"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
)

// TestBudgetHistories: after random claims and reservations of three clients, while units leave
// their windows and holds time out, the store holds what the model does.
func TestBudgetHistories(t *testing.T) {
	for seed := range depth.Of[uint64](40, 20_000) {
		synctest.Test(t, func(t *testing.T) {
			store, err := memorystore.New(nil)
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			var clients []budgetmodel.Client
			for range 3 {
				clients = append(clients, budgetmodel.NewClient(t, store, budgetLimits))
			}
			err = budgetmodel.Play(t.Context(), seed, fmt.Sprint("key", seed),
				budgetmodel.SyntheticClock, 80, clients...)
			if err != nil {
				t.Fatal(err)
			}
		})
		if t.Failed() {
			return
		}
	}
}

var budgetLimits = budgetmodel.Limits{
	Requests: driver.PerMinute("requests", 20),
	Tokens:   driver.PerMinute("tokens", 100),
	Hourly:   driver.PerHour("hourly", 1000),
	Money:    driver.PerDay("money", 2000),
	Calls:    5,
	Timeout:  2 * time.Minute,
}
