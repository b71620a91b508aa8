package faults

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
)

// TestFrozenAnswers measures how long calls take while the server is frozen.
func TestFrozenAnswers(t *testing.T) {
	const callers, each = 16, 20
	image := faultImages()[0]
	server := servers.Start(t, image)
	for _, lib := range clients.Libraries {
		store := lib.Client(t, clients.Dialing{Addrs: []string{server.Addr}, Prompt: true}).
			NewStore(t, nil)
		clients.Decided(t, store, clients.Take(servers.FreshKey(t)))
		server.Signal(t, "SIGSTOP")
		watched := servers.WatchStandstill()
		var wg sync.WaitGroup
		waited := make([][]time.Duration, callers)
		key := servers.FreshKey(t)
		for i := range waited {
			wg.Go(func() {
				pause(time.Duration(i) * 100 * time.Millisecond / callers) // not all at once
				for range each {
					start := time.Now()
					_, err := store.Take(context.Background(),
						driver.Demand{Key: key, Algorithm: clients.PerDay, N: 1})
					waited[i] = append(waited[i], time.Since(start))
					if err == nil {
						t.Error("answered by a frozen server")
					}
				}
			})
		}
		wg.Wait()
		still := watched()
		server.Signal(t, "SIGCONT")

		all := slices.Concat(waited...)
		slices.Sort(all)
		servers.Measured("%s frozen, %s: %d calls with a deadline of 100ms were answered after %v "+
			"at the least, p50 %v, p99 %v, %v at the most (the machine stood still for %v)",
			image, lib.Name, len(all), tenth(all[0]), tenth(all[len(all)/2]),
			tenth(all[len(all)*99/100]), tenth(all[len(all)-1]), still.Round(time.Millisecond))
		if longest := all[len(all)-1]; longest > servers.LatestAnswer(100*time.Millisecond, still) {
			t.Errorf("%s: an answer took %v, on a machine that stood still for %v", lib.Name,
				longest, still)
		}
	}
}

// tenth rounds d to tenths of a millisecond.
func tenth(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }
