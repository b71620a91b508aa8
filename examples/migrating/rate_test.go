package migrating

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"golang.org/x/time/rate"
)

func rateBefore() allowFunc {
	var mu sync.Mutex
	limiters := make(map[string]*rate.Limiter) // one for each key, never deleted
	return func(_ context.Context, key string) (bool, error) {
		mu.Lock()
		defer mu.Unlock()
		if limiters[key] == nil {
			limiters[key] = rate.NewLimiter(10, 20) // 10 a second, 20 at once
		}
		return limiters[key].Allow(), nil
	}
}

func rateAfter(store ratelimit.Store) (allowFunc, error) {
	limiter, err := ratelimit.New(store,
		algorithm.TokenBucket("api", 10, 20)) // 10 a second, 20 at once
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, key string) (bool, error) {
		res, err := limiter.Allow(ctx, key)
		return res.Allowed, err
	}, nil
}

func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		after, err := rateAfter(newStore(t, nil))
		if err != nil {
			t.Fatal(err)
		}
		check(t, []burst{
			{0, 25, 20},
			{450 * time.Millisecond, 10, 4},
			{time.Second, 20, 10},
			{time.Minute, 25, 20},
		}, rateBefore(), after)
	})
}

// TestRateTooMany tests calls for more units than the limit.
func TestRateTooMany(t *testing.T) {
	before := rate.NewLimiter(10, 20)
	if before.AllowN(time.Now(), 21) || before.WaitN(t.Context(), 21) == nil {
		t.Error("x/time/rate admits more than the burst")
	}
	after, err := ratelimit.New(newStore(t, nil), algorithm.TokenBucket("api", 10, 20))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := after.AllowN(t.Context(), "key", 21); !errors.Is(err, ratelimit.ErrExceedsLimit) {
		t.Errorf("AllowN: %v, want ErrExceedsLimit", err)
	}
}

// TestRateDeadline tests waits that cannot end before the deadline.
func TestRateDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := rate.NewLimiter(10, 20)
		after, err := ratelimit.New(newStore(t, nil), algorithm.TokenBucket("api", 10, 20))
		if err != nil {
			t.Fatal(err)
		}
		before.AllowN(time.Now(), 20)
		if _, err := after.AllowN(t.Context(), "key", 20); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := before.Wait(ctx); err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("x/time/rate: %v, want an error of its own", err)
		}
		res, err := after.Wait(ctx, "key")
		if !errors.Is(err, context.DeadlineExceeded) || res.RetryAfter != 100*time.Millisecond {
			t.Errorf("Wait: %+v, %v; want DeadlineExceeded, and 100ms to wait", res, err)
		}
		if time.Since(start) != 0 {
			t.Errorf("waited for %v", time.Since(start))
		}
	})
}

// TestRateChanges tests a long history beside x/time/rate, in which the rate and the burst change.
// One thing differs: here a larger burst is there at once, and a smaller one takes units away,
// which x/time/rate gets here as a ReserveN of the difference.
func TestRateChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(1, 2))
		store := newStore(t, nil)
		perSecond, burst := 10.0, int64(20)
		before := rate.NewLimiter(rate.Limit(perSecond), int(burst))
		var after *ratelimit.Limiter
		off, most := 0.0, 0.0 // units by which the two may differ, since Windows are whole µs
		rounded := func() float64 {
			limit := after.Limits()[0]
			return float64(limit.Max) / limit.Window.Seconds()
		}
		change := func() {
			var err error
			after, err = ratelimit.New(store,
				algorithm.TokenBucket("api", algorithm.Rate(perSecond), burst))
			if err != nil {
				t.Fatal(err)
			}
			off += 1e-6 / after.Limits()[0].Window.Seconds() // a part of a unit is rounded up
		}
		change()
		rates, bursts, admitted, refused, boundary := 0, 0, 0, 0, 0
		for i := range 40_000 {
			switch random.IntN(10) {
			case 0:
				perSecond = math.Pow(10, -1+4*random.Float64())
				before.SetLimitAt(time.Now(), rate.Limit(perSecond))
				change()
				rates++
			case 1:
				more := 1 + random.Int64N(500) - burst
				if more < 0 {
					before.ReserveN(time.Now(), int(-more))
				}
				burst += more
				before.SetBurstAt(time.Now(), int(burst))
				if more > 0 {
					before.ReserveN(time.Now(), int(-more))
				}
				change()
				bursts++
			case 2, 3, 4, 5:
				elapsed := time.Duration(random.ExpFloat64()*float64(burst)/perSecond*0.2e6) *
					time.Microsecond
				time.Sleep(elapsed)
				off += elapsed.Seconds() * math.Abs(rounded()-perSecond)
			default:
				n := 1 + random.Int64N(burst)
				if random.IntN(2) == 0 {
					n = 1 + random.Int64N(min(burst, 5))
				}
				tokens := before.Tokens()
				want := before.AllowN(time.Now(), int(n))
				got, err := after.AllowN(t.Context(), "key", n)
				if err != nil {
					t.Fatal(err)
				}
				switch {
				case got.Allowed == want && want:
					admitted++
				case got.Allowed == want:
					refused++
				case math.Abs(tokens-float64(n)) > off+1e-6:
					t.Fatalf("step %d: %d of %v units: Allowed %t, want %t", i, n, tokens,
						got.Allowed, want)
				case want: // within rounding: both record it
					boundary++
					if _, err := after.Force(t.Context(), "key", n); err != nil {
						t.Fatal(err)
					}
				default:
					boundary++
					before.ReserveN(time.Now(), int(n))
				}
			}
			got, err := after.Peek(t.Context(), "key")
			if err != nil {
				t.Fatal(err)
			}
			missing, bound := got.ResetAfter.Seconds()*rounded(), off+rounded()*1e-6+1e-6
			most = max(most, off)
			if want := float64(burst) - before.Tokens(); math.Abs(missing-want) > bound {
				t.Fatalf("step %d, %v a second, a burst of %d: %v units are missing, want %v",
					i, perSecond, burst, missing, want)
			}
			if got.ResetAfter == 0 && before.Tokens() == float64(burst) {
				off = 0
			}
		}
		t.Logf("%d rates, %d bursts, %d admitted, %d refused; %d differ within at most %v units",
			rates, bursts, admitted, refused, boundary, most)
		if min(rates, bursts, admitted, refused) < 3000 || boundary > 10 || most > 0.01 {
			t.Error("want 3000 of each, at most 10 that differ, and within 0.01 units")
		}
	})
}
