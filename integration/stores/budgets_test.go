package stores

import (
	"fmt"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/conformance/linear"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
	"github.com/truewindow/ratelimit/internal/testkit/budgetmodel"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
)

// TestBudgets: after random claims and reservations through clients of different libraries the
// server holds what a model predicts.
func TestBudgets(t *testing.T) {
	histories := depth.Of(20, 10_000)
	servers.EachTarget(t, func(t *testing.T, tgt *servers.Target) {
		var budgets []budgetmodel.Client
		for _, store := range budgetStores(t, tgt) {
			budgets = append(budgets, budgetmodel.NewClient(t, store, budgetLimits))
		}
		for i := range histories {
			err := budgetmodel.Play(t.Context(), uint64(i), fmt.Sprint("tenant", i),
				budgetmodel.Clock{}, 60, budgets...)
			if err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestBudgetsAtOnce: concurrent reservations through clients of different libraries are
// linearizable on each server, and in the end exactly the sum of what was settled is charged.
func TestBudgetsAtOnce(t *testing.T) {
	histories := depth.Of(5, 300)
	servers.EachTarget(t, func(t *testing.T, tgt *servers.Target) {
		stores := budgetStores(t, tgt)
		operations := 0
		for i := range histories {
			recorder := budgetmodel.NewRecorder(nil)
			storm := budgetmodel.Storm{
				Key: servers.UniquePrefix() + "tenant", Workers: 6, Seed: uint64(i),
			}
			for i, store := range stores {
				storm.Clients = append(storm.Clients,
					budgetmodel.NewClient(t, recorder.Store(i, store), budgetLimits))
			}
			ctx := t.Context()
			for _, step := range []func() error{
				func() error { return storm.Round(30) }, storm.Settle,
				func() error { return storm.Check(ctx, stores[0], false) },
			} {
				if err := step(); err != nil {
					t.Fatal(err)
				}
			}
			history := recorder.History()
			operations += len(history)
			if err := linear.Check(history); err != nil {
				t.Errorf("seed %d: the history of %d operations is not linearizable: %v", i,
					len(history), err)
			}
		}
		servers.Measured("%s: %d histories, %d operations", t.Name(), histories, operations)
	})
}

// budgetStores returns a store on each library, all with one prefix.
func budgetStores(t *testing.T, tgt *servers.Target) (stores []ratelimit.Store) {
	t.Helper()
	options := serverstore.Options{Prefix: servers.UniquePrefix(), Timeout: clients.Patient}
	for _, lib := range clients.Libraries {
		stores = append(stores, lib.Client(t, clients.To(tgt)).NewStore(t, &options))
	}
	return stores
}

const century = 300 * 24 * time.Hour

// budgetLimits have windows longer than the test.
var budgetLimits = budgetmodel.Limits{
	Requests: ratelimit.PerHour("requests", 200),
	Tokens:   ratelimit.PerHour("tokens", 1000),
	Hourly:   ratelimit.Limit{Name: "long", Max: 3000, Window: century},
	Money:    ratelimit.Limit{Name: "money", Max: 2000, Window: century},
	Calls:    5,
	Timeout:  time.Minute,
}
