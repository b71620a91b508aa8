package migrating

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"golang.org/x/time/rate"
)

// reserveLater takes n units, even if they are not free yet, and returns how long to wait before
// they may be used.
func reserveLater(
	ctx context.Context, limiter *ratelimit.Limiter, key string, n int64,
) (time.Duration, error) {
	res, err := limiter.Force(ctx, key, n)
	return max(0, res.ResetAfter-res.Limit.Window), err
}

// TestRateRows makes the calls of each row of the table.
func TestRateRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, store := t.Context(), newStore(t, nil)
		bucket := func(r algorithm.Rate, burst int64) *ratelimit.Limiter {
			l, err := ratelimit.New(store, algorithm.TokenBucket("api", r, burst))
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		before, after := rate.NewLimiter(3, 10), bucket(3, 10)
		same := func(row string, want, got any, err error) {
			t.Helper()
			if err != nil || got != want {
				t.Errorf("%s: %v, %v; x/time/rate: %v", row, got, err, want)
			}
		}
		near := func(row string, want, got time.Duration, err error) {
			t.Helper()
			if d := got - want; err != nil || d < -time.Microsecond || d > time.Microsecond {
				t.Errorf("%s: %v, %v; x/time/rate: %v", row, got, err, want)
			}
		}
		allow := func(n int) {
			t.Helper()
			res, err := after.AllowN(ctx, "key", int64(n))
			same("AllowN", before.AllowN(time.Now(), n), res.Allowed, err)
		}
		tokens := func() {
			t.Helper()
			res, err := after.Peek(ctx, "key")
			same("Tokens", int64(before.Tokens()), res.Remaining, err)
		}
		res, err := after.Allow(ctx, "key")
		same("Allow", before.Allow(), res.Allowed, err)
		tokens()
		allow(7)
		allow(3) // of 2
		time.Sleep(time.Second)
		tokens()

		var wg sync.WaitGroup
		began := time.Now()
		var want, got time.Duration
		wg.Go(func() {
			same("WaitN", nil, before.WaitN(ctx, 8), nil)
			want = time.Since(began)
		})
		_, err = after.WaitN(ctx, "key", 8)
		got = time.Since(began)
		wg.Wait()
		near("WaitN", want, got, err)

		want = before.ReserveN(time.Now(), 8).Delay()
		got, err = reserveLater(ctx, after, "key", 8)
		near("Reserve", want, got, err)

		time.Sleep(3 * time.Second)
		before.SetLimit(0.3)
		after = bucket(0.3, 10)
		allow(1)
		time.Sleep(time.Minute)
		tokens()
		before.SetLimit(rate.Every(7 * time.Second))
		after = bucket(algorithm.Every(7*time.Second), 10)
		allow(4)
		tokens()
		time.Sleep(time.Minute)
		tokens()
		same("Burst", int64(before.Burst()), after.Max(), nil)
	})
}
