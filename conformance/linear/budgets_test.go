package linear

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/testkit/budgetmodel"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
)

// TestBudgetsAtOnce: the calls that several goroutines of two clients make for their reservations
// at once are linearizable on the memory store, renewals included, and what is charged in the end
// is the sum of what was settled. In half of the histories units leave their windows, and holds
// time out.
func TestBudgetsAtOnce(t *testing.T) {
	histories := depth.Of[uint64](40, 2000)
	operations := 0
	for seed := range histories {
		operations += budgetsAtOnce(t, seed)
	}
	t.Logf("%d histories, %d operations", histories, operations)
}

// budgetsAtOnce checks a history and returns the number of its operations.
func budgetsAtOnce(t *testing.T, seed uint64) int {
	r := rand.New(rand.NewPCG(seed, 0))
	var clock atomic.Int64
	clock.Store(now)
	store, err := memorystore.New(&memorystore.Options{Now: clock.Load})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	forgets := seed%2 == 1
	limits, pause := hourly, int64(time.Second)
	if forgets {
		limits.Requests.Window, limits.Tokens.Window = time.Minute, time.Minute
		limits.Timeout, pause = 30*time.Millisecond, int64(time.Minute)/4 // renewed each 10 ms
	}
	recorder := budgetmodel.NewRecorder(clock.Load)
	storm := budgetmodel.Storm{Key: "tenant", Workers: 6, Seed: seed, Forgets: forgets}
	for i := range 2 {
		storm.Clients = append(storm.Clients,
			budgetmodel.NewClient(t, recorder.Store(i, store), limits))
	}
	for range 12 {
		if err := storm.Round(3); err != nil {
			t.Fatal(err)
		}
		recorder.Still(func() { clock.Add(time.Duration(r.Int64N(pause)).Microseconds()) })
		if forgets {
			time.Sleep(time.Duration(r.Int64N(int64(15 * time.Millisecond)))) // some are renewed
		}
	}
	if err := storm.Settle(); err != nil {
		t.Fatal(err)
	}
	if !forgets {
		if err := storm.Check(t.Context(), store, true); err != nil {
			t.Error(err)
		}
	}
	history := recorder.History()
	if err := Check(history); err != nil {
		t.Errorf("seed %d: %d operations: %v", seed, len(history), err)
	}
	return len(history)
}

// hourly limits have windows and a time-out that are longer than a test.
var hourly = budgetmodel.Limits{
	Requests: driver.PerHour("requests", 40),
	Tokens:   driver.PerHour("tokens", 300),
	Hourly:   driver.PerDay("daily", 1500),
	Money:    driver.PerDay("money", 500),
	Calls:    4,
	Timeout:  time.Minute,
}
