package ratelimit_test

import (
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/driver"
)

// BenchmarkLimiter measures calls that one key and one goroutine make on the memory store, all
// admitted.
func BenchmarkLimiter(b *testing.B) {
	store, err := memorystore.New(nil)
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	log := algorithm.SlidingLog(ratelimit.PerSecond("second", driver.MaxUnits))
	limiter, err := ratelimit.New(store, log.WithResolution(time.Millisecond))
	if err != nil {
		b.Fatal(err)
	}
	ctx := b.Context()
	for _, m := range []struct {
		name string
		call func() (ratelimit.Result, error)
	}{
		{"Allow", func() (ratelimit.Result, error) { return limiter.Allow(ctx, "user:42") }},
		{"AllowN", func() (ratelimit.Result, error) { return limiter.AllowN(ctx, "user:42", 1) }},
		{"Wait", func() (ratelimit.Result, error) { return limiter.Wait(ctx, "user:42") }},
	} {
		b.Run(m.name, func(b *testing.B) {
			for b.Loop() {
				if res, err := m.call(); err != nil || !res.Allowed {
					b.Fatal(res, err)
				}
			}
		})
	}
}
