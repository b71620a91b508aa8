package scripts

import (
	"context"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/conformance"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/servers"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
)

// TestQuotaInLua: the Lua step of a Quota does what its Go step does.
func TestQuotaInLua(t *testing.T) {
	servers.EachServer(t, func(t *testing.T, tgt *servers.Target) {
		client := tgt.Client(t)
		eval := func(ctx context.Context, script string, keys, args []string) (string, error) {
			var all []any
			for _, arg := range args {
				all = append(all, arg)
			}
			return client.Eval(ctx, script, keys, all...).Text()
		}
		if err := conformance.CheckLua(t.Context(), eval, quotaOptions); err != nil {
			t.Error(err)
		}
	})
}

// TestLuaStepsAreGoSteps: the Lua steps of this module do what their Go steps do.
func TestLuaStepsAreGoSteps(t *testing.T) {
	type kind = func(driver.Limit) driver.Algorithm
	opts := new(conformance.Options)
	for _, f := range []kind{
		func(l driver.Limit) driver.Algorithm { return algorithm.SlidingLog(l) },
		func(l driver.Limit) driver.Algorithm {
			return algorithm.SlidingLog(l).WithResolution(7 * time.Microsecond)
		},
		func(l driver.Limit) driver.Algorithm {
			return algorithm.SlidingLog(l).WithResolution(part(l, 16))
		},
		func(l driver.Limit) driver.Algorithm { return algorithm.GCRA(l) },
		func(l driver.Limit) driver.Algorithm { return algorithm.GCRA(l).WithDebt(l.Window) },
		func(l driver.Limit) driver.Algorithm {
			return algorithm.GCRA(l).WithDebt(2*l.Window + 3*time.Microsecond)
		},
		func(l driver.Limit) driver.Algorithm {
			return algorithm.GCRA(l).WithDebt((1<<50 - 1) * time.Microsecond)
		},
		func(l driver.Limit) driver.Algorithm { return algorithm.SlidingLog(l).Ahead(part(l, 50)) },
		func(l driver.Limit) driver.Algorithm {
			return algorithm.SlidingLog(l).WithResolution(part(l, 16)).Ahead(part(l, 3))
		},
		func(l driver.Limit) driver.Algorithm { return algorithm.GCRA(l).Ahead(part(l, 50)) },
		func(l driver.Limit) driver.Algorithm {
			return algorithm.GCRA(l).WithDebt(l.Window).Ahead(part(l, 2))
		},
		func(l driver.Limit) driver.Algorithm { return algorithm.FixedWindow(l) },
		func(l driver.Limit) driver.Algorithm {
			return algorithm.FixedWindow(l).WithOffset(l.Window - time.Microsecond)
		},
		func(l driver.Limit) driver.Algorithm {
			return algorithm.FixedWindow(l).WithOffset(-part(l, 3))
		},
		func(l driver.Limit) driver.Algorithm { return algorithm.SlidingWindowCounter(l) },
		func(l driver.Limit) driver.Algorithm { return algorithm.Monthly(l.Name, l.Max) },
		func(l driver.Limit) driver.Algorithm {
			return algorithm.Monthly(l.Name, l.Max).WithOffset(-2 * time.Hour)
		},
		func(l driver.Limit) driver.Algorithm {
			return algorithm.Quarterly(l.Name, l.Max).WithDay(31)
		},
		func(l driver.Limit) driver.Algorithm {
			return algorithm.Monthly(l.Name, l.Max).WithDay(29 + int(l.Max%3))
		},
		func(l driver.Limit) driver.Algorithm {
			return algorithm.Weekly(l.Name, l.Max, time.Weekday(l.Max%7))
		},
	} {
		opts.Algorithms = append(opts.Algorithms, f,
			func(l driver.Limit) driver.Algorithm { return algorithm.Budget(f(l)) },
			func(l driver.Limit) driver.Algorithm {
				held := algorithm.Budget(f(l)).WithTimeout(time.Second)
				if l.Max%2 == 1 {
					held = held.ChargeTimeouts()
				}
				return held
			})
	}
	opts.Algorithms = append(opts.Algorithms,
		func(l driver.Limit) driver.Algorithm { return algorithm.Blocking(l.Name, l.Window) },
		func(l driver.Limit) driver.Algorithm { return algorithm.InFlight(l.Name, l.Max) },
		func(l driver.Limit) driver.Algorithm {
			return algorithm.InFlight(l.Name, l.Max).WithTimeout(time.Second)
		})
	servers.EachServer(t, func(t *testing.T, tgt *servers.Target) {
		skipIfOlder(t, tgt)
		if err := conformance.CheckLua(t.Context(), evalBy(tgt.Client(t)), opts); err != nil {
			t.Error(err)
		}
	})
}

// skipIfOlder skips the test on the oldest of several servers, but for a full run.
func skipIfOlder(t *testing.T, tgt *servers.Target) {
	t.Helper()
	if all := servers.Images(); len(all) > 2 && tgt.Image == all[0] && !depth.Full {
		t.Skip("newer servers are enough")
	}
}

// part returns a part of the Window of l in whole microseconds.
func part(l driver.Limit, parts time.Duration) time.Duration {
	return (l.Window / parts).Truncate(time.Microsecond)
}
