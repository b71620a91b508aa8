package integration

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
)

// TestFrozenAnswers measures when those who ask a frozen server are answered.
func TestFrozenAnswers(t *testing.T) {
	const callers, each = 16, 20
	image := faultImages()[0]
	server := startServer(t, image)
	for _, lib := range libraries {
		store := lib.client(t, dialing{addrs: []string{server.addr}, prompt: true}).newStore(t, nil)
		if _, err := store.Take(t.Context(), take(freshKey(t))); err != nil {
			t.Fatal(err)
		}
		server.signal(t, "SIGSTOP")
		stop := make(chan struct{})
		var still time.Duration
		var watch, wg sync.WaitGroup
		watch.Go(func() { still = standstill(stop) })
		waited := make([][]time.Duration, callers)
		key := freshKey(t)
		for i := range waited {
			wg.Go(func() {
				pause(time.Duration(i) * 100 * time.Millisecond / callers) // not all at once
				for range each {
					start := time.Now()
					_, err := store.Take(context.Background(), ratelimit.Demand{Key: key, Algorithm: perDay, N: 1})
					waited[i] = append(waited[i], time.Since(start))
					if err == nil {
						t.Error("answered by a frozen server")
					}
				}
			})
		}
		wg.Wait()
		close(stop)
		watch.Wait()
		server.signal(t, "SIGCONT")

		all := slices.Concat(waited...)
		slices.Sort(all)
		ran.measured("%s frozen, %s: %d calls with a deadline of 100ms were answered after %v at the least, p50 %v, p99 %v, %v at the most (the machine stood still for %v)",
			image, lib.name, len(all), all[0].Round(100*time.Microsecond), all[len(all)/2].Round(100*time.Microsecond),
			all[len(all)*99/100].Round(100*time.Microsecond), all[len(all)-1].Round(100*time.Microsecond), still.Round(time.Millisecond))
		if longest := all[len(all)-1]; longest > 100*time.Millisecond+answerSlack+2*still {
			t.Errorf("%s: an answer took %v, on a machine that stood still for %v", lib.name, longest, still)
		}
	}
}
