package stores

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
)

// TestRedisRateRows makes the calls of each row of the table for redis_rate in docs/migrating.md,
// under a rate that refills nothing during the test.
func TestRedisRateRows(t *testing.T) {
	servers.EachServer(t, func(t *testing.T, tgt *servers.Target) {
		ctx, key := t.Context(), servers.UniquePrefix()
		before := redis_rate.NewLimiter(tgt.Client(t))
		rate := redis_rate.Limit{Rate: 2, Burst: 10, Period: 20 * time.Hour}
		perSecond := algorithm.Rate(float64(rate.Rate) / rate.Period.Seconds())
		after, err := ratelimit.New(clients.CalmStore(t, tgt, nil),
			algorithm.TokenBucket("api", perSecond, int64(rate.Burst)))
		if err != nil {
			t.Fatal(err)
		}
		want := func(res *redis_rate.Result, err error) *redis_rate.Result {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			return res
		}
		same := func(row string, want *redis_rate.Result, got ratelimit.Result, err error) {
			t.Helper()
			retry := max(0, want.RetryAfter) - got.RetryAfter
			if err != nil || got.Allowed != (want.Allowed > 0) || retry.Abs() > time.Minute ||
				got.Allowed && got.Remaining != int64(want.Remaining) {
				t.Errorf("%s: %+v, %v; redis_rate: %+v", row, got, err, *want)
			}
		}
		res, err := after.Allow(ctx, key)
		same("Allow", want(before.Allow(ctx, key, rate)), res, err)
		res, err = after.AllowN(ctx, key, 6)
		same("AllowN", want(before.AllowN(ctx, key, rate, 6)), res, err)
		res, err = after.AllowN(ctx, key, 5)
		same("AllowN", want(before.AllowN(ctx, key, rate, 5)), res, err)
		peeked := want(before.AllowN(ctx, key, rate, 0))
		res, err = after.Peek(ctx, key)
		if err != nil || res.Remaining != int64(peeked.Remaining) {
			t.Errorf("Peek: %+v, %v; redis_rate: %+v", res, err, *peeked)
		}
		part := want(before.AllowAtMost(ctx, key, rate, 5))
		results, err := ratelimit.AllowAll(ctx,
			ratelimit.Claim{Limiter: after, Key: key, N: 5, Least: 1})
		if err != nil || results[0].Units != int64(part.Allowed) {
			t.Errorf("AllowAtMost: %+v, %v; redis_rate: %+v", results, err, *part)
		}
		if err := before.Reset(ctx, key); err != nil {
			t.Fatal(err)
		}
		if err := after.Reset(ctx, key); err != nil {
			t.Fatal(err)
		}
		res, err = after.AllowN(ctx, key, 10)
		same("Reset", want(before.AllowN(ctx, key, rate, 10)), res, err)
	})
}

// TestLeastIsAtMost: parts of at least one unit are those of AllowAtMost of redis_rate on the same
// server, under a rate that refills nothing during the test.
func TestLeastIsAtMost(t *testing.T) {
	const burst, keys, calls = 100, 50, 3000
	servers.EachServer(t, func(t *testing.T, tgt *servers.Target) {
		prefix := servers.UniquePrefix()
		before := redis_rate.NewLimiter(tgt.Client(t))
		limit := redis_rate.Limit{Rate: 1, Burst: burst, Period: time.Hour}
		after, err := ratelimit.New(clients.CalmStore(t, tgt, nil), algorithm.GCRA(
			driver.Limit{Name: "l", Max: burst, Window: burst * time.Hour}))
		if err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(1, 2))
		parts := 0
		for i := range calls {
			key, n := fmt.Sprint(prefix, r.IntN(keys)), 1+r.IntN(12)
			if r.IntN(20) == 0 {
				n = burst + r.IntN(burst)
			}
			want, err := before.AllowAtMost(t.Context(), key, limit, n)
			if err != nil {
				t.Fatal(err)
			}
			got, err := ratelimit.AllowAll(t.Context(),
				ratelimit.Claim{Limiter: after, Key: key, N: int64(n), Least: 1})
			if err != nil {
				t.Fatal(err)
			}
			if got[0].Units != int64(want.Allowed) || got[0].Allowed != (want.Allowed > 0) ||
				got[0].Remaining != int64(want.Remaining) {
				t.Fatalf("call %d, at most %d units: %+v; redis_rate: %+v", i, n, got[0], want)
			}
			if want.Allowed > 0 && want.Allowed < n {
				parts++
			}
			if r.IntN(100) == 0 {
				if err := before.Reset(t.Context(), key); err != nil {
					t.Fatal(err)
				}
				if err := after.Reset(t.Context(), key); err != nil {
					t.Fatal(err)
				}
			}
		}
		if parts < keys/2 {
			t.Errorf("%d parts: this test proves nothing", parts)
		}
	})
}
