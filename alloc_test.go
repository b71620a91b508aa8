//go:build !race

package ratelimit_test

import (
	"context"
	"slices"
	"testing"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/driver"
)

// constStore gives every valid demand the same answer and allocates nothing.
type constStore struct{ res ratelimit.Result }

func (s constStore) Take(ctx context.Context, d driver.Demand) (ratelimit.Result, error) {
	return s.res, driver.CheckTake(ctx, d)
}

func (s constStore) TakeAll(
	ctx context.Context, ds []driver.Demand, out []ratelimit.Result,
) error {
	for i := range out {
		out[i] = s.res
	}
	return driver.CheckTakeAll(ctx, ds, out)
}

// The race detector drops pooled values at random, so these figures hold only without it.
func TestNoAllocations(t *testing.T) {
	ctx := t.Context()
	for _, tt := range []struct {
		name   string
		limits []ratelimit.Limit
	}{
		{"one limit", []ratelimit.Limit{ratelimit.PerSecond("a", 10)}},
		{"several limits", []ratelimit.Limit{
			ratelimit.PerSecond("a", 10), ratelimit.PerMinute("b", 10), ratelimit.PerDay("c", 10),
		}},
	} {
		for _, allowed := range []bool{true, false} {
			limiter := newLimiter(t, constStore{ratelimit.Result{Allowed: allowed}}, tt.limits...)
			dst := make([]ratelimit.Result, 0, len(tt.limits))
			admission := slices.Repeat([]ratelimit.Result{{Allowed: true, At: 1}}, len(tt.limits))
			calls := map[string]func() error{
				"Allow":  func() error { _, err := limiter.Allow(ctx, "k"); return err },
				"AllowN": func() error { _, err := limiter.AllowN(ctx, "k", 2); return err },
				"AllowEach": func() error {
					_, err := limiter.AllowEach(ctx, "k", 1, dst)
					return err
				},
				"Peek": func() error { _, err := limiter.Peek(ctx, "k"); return err },
				"PeekEach": func() error {
					_, err := limiter.PeekEach(ctx, "k", 1, dst)
					return err
				},
				"Force":    func() error { _, err := limiter.Force(ctx, "k", 2); return err },
				"GiveBack": func() error { return limiter.GiveBack(ctx, "k", 2, admission...) },
				"Reset":    func() error { return limiter.Reset(ctx, "k") },
			}
			if allowed {
				calls["Wait"] = func() error { _, err := limiter.Wait(ctx, "k"); return err }
			}
			for name, call := range calls {
				if err := call(); err != nil {
					t.Fatalf("%s, %s: %v", tt.name, name, err)
				}
				if n := testing.AllocsPerRun(200, func() { _ = call() }); n != 0 {
					t.Errorf("%s, allowed %v: %s allocates %v times, want 0",
						tt.name, allowed, name, n)
				}
			}
		}
	}
}
