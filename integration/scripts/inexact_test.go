package scripts

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	redisstore "github.com/truewindow/ratelimit/backend/redis"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/conformance"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
)

// TestMonthsInLua: at the first and the last microsecond of every month until 2112, and on a random
// day, a month ends in Lua when it ends in the calendar of package time.
func TestMonthsInLua(t *testing.T) {
	offsets := []time.Duration{0, -2 * time.Hour, 5*time.Hour + 30*time.Minute, -24 * time.Hour,
		24 * time.Hour, 14 * 24 * time.Hour}
	servers.EachServer(t, func(t *testing.T, tgt *servers.Target) {
		r := rand.New(rand.NewPCG(12, 1))
		for _, offset := range offsets {
			w := newTwin(t, tgt.Client(t), fmt.Sprint("months", offset))
			d := driver.Demand{Key: "k", N: 1,
				Algorithm: algorithm.Monthly("months", 5).WithOffset(offset)}
			zone := time.FixedZone("", -int(offset.Seconds()))
			for year := 1970; year <= 2112; year++ {
				for month := time.January; month <= time.December; month++ {
					first := time.Date(year, month, 1, 0, 0, 0, 0, zone)
					next := time.Date(year, month+1, 1, 0, 0, 0, 0, zone)
					for _, at := range []time.Time{first, next.Add(-time.Microsecond),
						first.Add(time.Duration(r.Int64N(int64(next.Sub(first))))),
					} {
						at = at.Truncate(time.Microsecond)
						now := at.UnixMicro()
						if now < 1 || now >= 1<<52 {
							continue
						}
						d.Op = driver.OpReset
						w.step(t, now, d)
						d.Op = driver.OpTake
						res := w.step(t, now, d)
						if want := next.Sub(at); !res.Allowed || res.ResetAfter != want {
							t.Fatalf("at %v in Go: %+v, want a ResetAfter of %v", at, res, want)
						} else if want > time.Hour { // else the key may expire
							w.step(t, now, driver.Demand{Key: "k", Op: driver.OpPeek, N: 5,
								Algorithm: d.Algorithm})
						}
					}
				}
			}
			w.compare(t)
		}
	})
}

// TestInexactOnServers runs the conformance suite with these algorithms on single servers. It omits
// the cases of many keys and calls, which use the first algorithm only: TestConformance of
// integration/conformance and TestQuotaOnMemory run them.
func TestInexactOnServers(t *testing.T) {
	t.Parallel()
	opts := *quotaOptions
	opts.Algorithms = append(slices.Clone(opts.Algorithms),
		func(l driver.Limit) driver.Algorithm { return algorithm.GCRA(l) },
		func(l driver.Limit) driver.Algorithm { return algorithm.FixedWindow(l) },
		func(l driver.Limit) driver.Algorithm { return algorithm.SlidingWindowCounter(l) },
		func(l driver.Limit) driver.Algorithm { return algorithm.Monthly(l.Name, l.Max) })
	opts.Except = maps.Clone(opts.Except)
	opts.Except["clock/back-up-to-window"] = "it looks into a rolling Window"
	opts.Except["algorithm/values"] = "TestInexactOnMemory tries it; months are always 31 days"
	for _, rule := range []string{"identity/many-keys", "identity/hashed-keys", "op/many-records",
		"concurrency/many-calls"} {
		opts.Except[rule] = "TestConformance tries it"
	}
	servers.EachServer(t, func(t *testing.T, tgt *servers.Target) {
		if tgt.Cluster {
			return
		}
		conformance.Run(t, func(t testing.TB, now func() int64) conformance.Harness {
			store, err := redisstore.New(tgt.Client(t),
				&serverstore.Options{Timeout: clients.Patient, Now: now})
			if err != nil {
				t.Fatal(err)
			}
			return conformance.Harness{Store: store}
		}, &opts)
	})
}
