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
	"github.com/truewindow/ratelimit/internal/testkit/depth"
)

// TestCalendarInLua: at the first and the last microsecond of every week, month and quarter until
// 2112, and at a random instant, a window ends in Lua when it ends in Go, which TestCalendar of
// package algorithm tests.
func TestCalendarInLua(t *testing.T) {
	kinds := []algorithm.Fixed{
		algorithm.Monthly("m", 5).WithDay(31), algorithm.Quarterly("q", 5).WithDay(29),
		algorithm.Monthly("m", 5).WithOffset(14 * 24 * time.Hour),
	}
	if depth.Full {
		kinds = append(kinds, algorithm.Weekly("w", 5, time.Monday),
			algorithm.Weekly("w", 5, time.Saturday))
		for day := 1; day <= 31; day++ {
			kinds = append(kinds, algorithm.Monthly("m", 5).WithDay(day),
				algorithm.Quarterly("q", 5).WithDay(day))
		}
	}
	offsets := []time.Duration{0, -2 * time.Hour, 5*time.Hour + 30*time.Minute, -24 * time.Hour,
		24 * time.Hour}
	servers.EachServer(t, func(t *testing.T, tgt *servers.Target) {
		r := rand.New(rand.NewPCG(12, 1))
		for i, offset := range offsets {
			testCalendarInLua(t, newTwin(t, tgt.Client(t), fmt.Sprint("months", i)),
				algorithm.Monthly("m", 5).WithOffset(offset), r)
		}
		for i, a := range kinds {
			testCalendarInLua(t, newTwin(t, tgt.Client(t), fmt.Sprint("calendar", i)), a, r)
		}
	})
}

func testCalendarInLua(t *testing.T, w *twin, a algorithm.Fixed, r *rand.Rand) {
	t.Helper()
	d := driver.Demand{Key: "k", N: 1, Algorithm: a}
	length := int64(1)
	for begin := int64(1); begin+length < 1<<52; begin += length {
		for _, now := range []int64{begin, begin + length - 1, begin + r.Int64N(length)} {
			d.Op = driver.OpReset
			w.step(t, now, d)
			d.Op = driver.OpTake
			res := w.step(t, now, d)
			if now == begin {
				length = res.ResetAfter.Microseconds()
			}
			if res.ResetAfter > time.Hour { // else the key may expire
				d.Op = driver.OpPeek
				w.step(t, now, d)
			}
		}
	}
	w.compare(t)
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
