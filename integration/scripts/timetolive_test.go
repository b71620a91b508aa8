package scripts

import (
	"fmt"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend/lua"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/servers"
)

// TestTimeToLiveShortened: after the Window was reduced from 30 days to a second, and after the
// clock has stepped back by 10 days, the next admission shortens the time to live of the key. A
// bucket is not here: what it owes is refilled at the new rate.
func TestTimeToLiveShortened(t *testing.T) {
	t.Parallel()
	const long, short = 30 * 24 * time.Hour, time.Second
	limit := func(window time.Duration) driver.Limit {
		return driver.Limit{Name: "ttl", Max: 1000, Window: window}
	}
	algorithms := map[string]func(time.Duration) driver.Algorithm{
		"log": func(w time.Duration) driver.Algorithm { return algorithm.SlidingLog(limit(w)) },
		"coarse log": func(w time.Duration) driver.Algorithm {
			return algorithm.SlidingLog(limit(w)).WithResolution(10 * time.Millisecond)
		},
		"fixed": func(w time.Duration) driver.Algorithm {
			return algorithm.FixedWindow(limit(w))
		},
		"counter": func(w time.Duration) driver.Algorithm {
			return algorithm.SlidingWindowCounter(limit(w))
		},
		"block": func(w time.Duration) driver.Algorithm { return algorithm.Blocking("ttl", w) },
	}
	servers.EachServer(t, func(t *testing.T, tgt *servers.Target) {
		client := tgt.Client(t)
		for name, with := range algorithms {
			for _, records := range []int{1, 50, 500} {
				for what, ahead := range map[string]time.Duration{
					"reduced": -time.Minute, "stepped": 10 * 24 * time.Hour,
				} {
					what = fmt.Sprintf("%s, %s, %d records", name, what, records)
					key := "{ttl}" + servers.FreshKey(t)
					now := time.Now().Add(ahead)
					before := with(short)
					if ahead < 0 {
						before = with(long)
					}
					var state []byte
					for i := range records {
						state, _, _ = driver.Demand{Key: key, Algorithm: before,
							Op: driver.OpForce, N: 1}.
							Step(state, now.UnixMicro()+int64(i*1000))
					}
					if err := client.Set(t.Context(), key, state, long).Err(); err != nil {
						t.Fatal(err)
					}
					ask := func(op driver.Op) time.Duration {
						t.Helper()
						var call lua.Run
						call.Begin(0)
						d := driver.Demand{Key: key, Algorithm: with(short), Op: op, N: 1}
						if err := call.Add([]string{key}, []driver.Demand{d}); err != nil {
							t.Fatal(err)
						}
						var out [1]driver.Result
						if err := call.Results(runCall(t, client, &call), 0, out[:]); err != nil {
							t.Fatal(err)
						}
						return client.PTTL(t.Context(), key).Val()
					}
					ask(driver.OpPeek)
					if left := ask(driver.OpForce); left > 2*short+200*time.Millisecond {
						t.Errorf("%s: the key is kept for %v, want twice %v at most", what, left,
							short)
					}
				}
			}
		}
	})
}

// TestTimeToLiveRound: a time to live with many zeros at its end, which Lua writes with an
// exponent, is set exactly, and one of a part of a millisecond is rounded up.
func TestTimeToLiveRound(t *testing.T) {
	t.Parallel()
	const end = 4_000_000_000_000 // ms, in 2096
	servers.EachServer(t, func(t *testing.T, tgt *servers.Target) {
		for name, tt := range map[string]struct {
			now    int64
			us     string
			expiry bool // want is an expiry, not a time to live
			want   int64
		}{
			"absolute":          {0, "4000000000000000 - now", true, end},
			"absolute, rounded": {0, "4000000000000001 - now", true, end + 1},
			"relative":          {1, "3999999999999000", false, end},
			"relative, rounded": {1, "3999999999998001", false, end},
		} {
			d := driver.Demand{Key: "k", N: 1, Algorithm: unlike{
				algorithm.SlidingLog(driver.PerMinute("minute", 1)), name, `
local function step(key, tail, now, op, n, at, args, pos)
  return 1, 0, 0, 0, now, ` + tt.us + `, 'state'
end`}}
			key := servers.FreshKey(t)
			var call lua.Run
			call.Begin(tt.now)
			if err := call.Add([]string{key}, []driver.Demand{d}); err != nil {
				t.Fatal(err)
			}
			runCall(t, tgt.Client(t), &call)
			if tt.expiry {
				if got := tgt.Client(t).PExpireTime(t.Context(), key).Val(); got != time.Duration(
					tt.want)*time.Millisecond {
					t.Errorf("%s: the key expires at %v, want %d ms", name, got, tt.want)
				}
			} else if got := tgt.Client(t).PTTL(t.Context(), key).Val().Milliseconds(); got >
				tt.want || got < tt.want-60_000 {
				t.Errorf("%s: the key is kept for %d ms, want %d", name, got, tt.want)
			}
		}
	})
}
