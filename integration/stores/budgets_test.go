package stores

import (
	"fmt"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
	"github.com/truewindow/ratelimit/internal/budgetmodel"
)

// TestBudgets: after random claims, reservations and leases of clients on different libraries the
// server holds what the model does.
func TestBudgets(t *testing.T) {
	histories := 20
	if servers.Full {
		histories = 10_000
	}
	servers.EachTarget(t, func(t *testing.T, tgt *servers.Target) {
		prefix := servers.UniquePrefix()
		var budgets []budgetmodel.Client
		for _, lib := range clients.Libraries {
			client := lib.Client(t, clients.To(tgt))
			options := serverstore.Options{Prefix: prefix, Timeout: clients.Patient}
			store := client.NewStore(t, &options)
			budgets = append(budgets, budgetClient(t, store))
		}
		for i := range histories {
			budgetmodel.Play(t, uint64(i), fmt.Sprint("tenant", i), budgetmodel.Clock{}, 40, budgets...)
		}
	})
}

// budgetClient returns a client whose windows are longer than the test.
func budgetClient(t *testing.T, store ratelimit.Store) budgetmodel.Client {
	t.Helper()
	requests, err := ratelimit.New(store, algorithm.SlidingLog(ratelimit.PerHour("requests", 200)))
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := ratelimit.New(store, algorithm.SlidingLog(ratelimit.PerHour("tokens", 1000)),
		algorithm.SlidingLog(ratelimit.PerDay("daily", 3000)))
	if err != nil {
		t.Fatal(err)
	}
	calls, err := ratelimit.NewInFlight(store,
		algorithm.SlidingLog(ratelimit.Limit{Name: "calls", Max: 5, Window: time.Hour}))
	if err != nil {
		t.Fatal(err)
	}
	return budgetmodel.Client{requests, tokens, calls}
}
