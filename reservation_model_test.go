package ratelimit_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/internal/testkit/budgetmodel"
)

// TestReservationModel: after random calls of two clients the log holds what the model does.
func TestReservationModel(t *testing.T) {
	for seed := range uint64(300) {
		clock := newClock()
		store := &mapStore{now: clock.now}
		client := func() budgetmodel.Client {
			calls, err := ratelimit.NewInFlight(store,
				naiveLog{ratelimit.Limit{Name: "calls", Max: 5, Window: 10 * time.Minute}})
			if err != nil {
				t.Fatal(err)
			}
			return budgetmodel.Client{
				newLimiter(t, store, ratelimit.PerMinute("requests", 20)),
				newLimiter(t, store,
					ratelimit.PerMinute("tokens", 100), ratelimit.PerHour("hourly", 1000)),
				calls,
			}
		}
		budgetmodel.Play(t, seed, fmt.Sprint("key", seed),
			budgetmodel.Clock{Now: clock.now, Advance: clock.advance}, 60,
			client(), client())
	}
}
