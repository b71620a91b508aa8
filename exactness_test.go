package ratelimit_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
)

// TestExactness measures what the README compares: the most units admitted in any rolling window, and refusals that an exact log of the
// admissions would not have made.
func TestExactness(t *testing.T) {
	const most, window = 50, time.Second
	var worst, decisions, wrong int
	for seed := range uint64(202) {
		clock := newClock()
		store, err := memorystore.New(&memorystore.Options{Now: clock.now})
		if err != nil {
			t.Fatal(err)
		}
		limiter, err := ratelimit.New(store, algorithm.SlidingLog(ratelimit.Limit{Max: most, Window: window}))
		if err != nil {
			t.Fatal(err)
		}
		var admitted []int64 // stamps, ascending
		for _, pause := range traces(seed, window) {
			clock.advance(pause)
			now := clock.now()
			inWindow := 0
			for i := len(admitted) - 1; i >= 0 && admitted[i] > now-window.Microseconds(); i-- {
				inWindow++
			}
			res, err := limiter.Allow(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			decisions++
			if res.Allowed {
				admitted = append(admitted, now)
				worst = max(worst, inWindow+1)
			} else if inWindow < most {
				wrong++
			}
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d decisions: worst %.2f × the limit, %d wrong refusals", decisions, float64(worst)/most, wrong)
	if worst != most || wrong != 0 {
		t.Errorf("at most %d of %d were admitted in a window, with %d wrong refusals", worst, most, wrong)
	}
}

// traces returns the pauses between the calls of a run: the first two aim at the edges of windows, of the clock and from the
// first call; the others are random bursts.
func traces(seed uint64, window time.Duration) (pauses []time.Duration) {
	burst := func(pause time.Duration, calls int) {
		pauses = append(pauses, pause)
		for range calls - 1 {
			pauses = append(pauses, 0)
		}
	}
	if seed < 2 {
		if seed == 1 {
			burst(window/2, 1)
		}
		for range 20 {
			burst(window-2*time.Microsecond, 60)
			burst(time.Microsecond, 60)
			burst(time.Microsecond, 60)
		}
		return pauses
	}
	r := rand.New(rand.NewPCG(seed, 1))
	for range 60 {
		burst(time.Duration(r.Int64N(int64(window))*7/10), 1+r.IntN(60))
	}
	return pauses
}
