package ratelimit_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
)

// TestWaitLarge measures how long a large demand waits while others take each unit as soon as it is
// free: in one queue until those ahead of it are admitted and its units are free, which takes at
// most two windows here. In a queue of its own, as in another process, it may wait for ever.
func TestWaitLarge(t *testing.T) {
	const trials = 10
	limit := ratelimit.Limit{Name: "w", Max: 20, Window: 10 * time.Second}
	for _, a := range []ratelimit.Algorithm{
		algorithm.SlidingLog(limit), algorithm.GCRA(limit),
	} {
		for _, n := range []int64{2, limit.Max / 2} {
			for _, together := range []bool{true, false} {
				var waits []time.Duration
				var others, admitted int
				for range trials {
					synctest.Test(t, func(t *testing.T) {
						wait, before := largeWait(t, a, n, together)
						waits, others = append(waits, wait), others+before
						if wait < largePatience {
							admitted++
						}
					})
				}
				slices.Sort(waits)
				t.Logf("%s, %d of %d units, one queue %t: %d of %d are admitted, after %v at the "+
					"median, and %d others meanwhile", a.Name(), n, limit.Max, together, admitted,
					trials, waits[trials/2].Round(time.Second/10), others/trials)
				if last := waits[trials-1]; together && last > 2*limit.Window {
					t.Errorf("the longest wait is %v", last)
				}
			}
		}
	}
}

// largePatience is how long a large demand waits at most.
const largePatience = 200 * time.Second

// largeWait returns how long a demand of n units waits, and how many others are admitted meanwhile.
func largeWait(
	t *testing.T, a ratelimit.Algorithm, n int64, together bool,
) (wait time.Duration, others int) {
	store, err := memorystore.New(nil)
	noErr(t, err)
	defer store.Close()
	small, err := ratelimit.New(store, a)
	noErr(t, err)
	large := small
	if !together {
		large, err = ratelimit.New(store, a)
		noErr(t, err)
	}
	limit := a.Limit()
	for range 2 * limit.Max { // so that units become free at random times
		_, err := small.Allow(t.Context(), "k")
		noErr(t, err)
		time.Sleep(rand.N(2 * limit.Window / time.Duration(limit.Max)))
	}
	ctx, cancel := context.WithTimeout(t.Context(), largePatience)
	defer cancel()
	var admitted atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				if _, err := small.Wait(ctx, "k"); err == nil {
					admitted.Add(1)
				}
			}
		})
	}
	synctest.Wait()
	before, began := admitted.Load(), time.Now()
	_, err = large.WaitN(ctx, "k", n)
	wait, others = time.Since(began), int(admitted.Load()-before)
	if err != nil {
		wait = largePatience
	}
	cancel()
	wg.Wait()
	return wait, others
}
