package migrating

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
)

// both admits what both limiters admit. A call that only after refuses is charged to before.
func both(before, after allowFunc) allowFunc {
	return func(ctx context.Context, key string) (bool, error) {
		if ok, err := before(ctx, key); err != nil || !ok {
			return false, err
		}
		return after(ctx, key)
	}
}

// TestSwitch moves two processes from throttled to an exact log, while one key takes as much as it
// can. The processes share one store of each kind, and each release reaches them 10 s apart.
func TestSwitch(t *testing.T) {
	for _, c := range []struct {
		name string
		step func(before, after allowFunc) allowFunc // what runs for a minute in between
		want int                                     // most admitted in a minute, from the move on
	}{
		{"at once", func(before, _ allowFunc) allowFunc { return before }, 120},
		{"with both in between", both, 60},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				before := throttledMinute(t)
				after, err := rueidisAfter(newStore(t, nil))
				if err != nil {
					t.Fatal(err)
				}
				processes := [2]allowFunc{before, before}
				var counts []int // by second
				for second := range 240 {
					switch second {
					case 60:
						processes[0] = c.step(before, after)
					case 70:
						processes[1] = c.step(before, after)
					case 130:
						processes[0] = after
					case 140:
						processes[1] = after
					}
					n := admitted(t, processes[0], "key", 70) + admitted(t, processes[1], "key", 70)
					counts = append(counts, n)
					time.Sleep(time.Second)
				}
				if got := mostInMinute(counts, 130); got != c.want {
					t.Errorf("admitted %d in a minute, want %d", got, c.want)
				}
			})
		})
	}
}

// mostInMinute returns the largest sum of 60 seconds that end in the second from, or later.
func mostInMinute(counts []int, from int) (most int) {
	for end := from; end < len(counts); end++ {
		sum := 0
		for _, n := range counts[end-59 : end+1] {
			sum += n
		}
		most = max(most, sum)
	}
	return most
}

// throttledMinute returns a limiter of throttled: one a second, 60 at once.
func throttledMinute(t *testing.T) allowFunc {
	t.Helper()
	store, err := memstore.NewCtx(0)
	if err != nil {
		t.Fatal(err)
	}
	limiter, err := throttled.NewGCRARateLimiterCtx(store,
		throttled.RateQuota{MaxRate: throttled.PerMin(60), MaxBurst: 59})
	if err != nil {
		t.Fatal(err)
	}
	return func(ctx context.Context, key string) (bool, error) {
		limited, _, err := limiter.RateLimitCtx(ctx, key, 1)
		return !limited, err
	}
}
