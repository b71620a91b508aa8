package clients

import (
	"context"
	"slices"
	"testing"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	redisstore "github.com/truewindow/ratelimit/backend/redis"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/servers"
)

// ThreeAnHour is a limit that is soon used up and whose window no test outlasts.
var ThreeAnHour = algorithm.SlidingLog(ratelimit.PerHour("hour", 3))

// Ask decides d and fails the test on an error.
func Ask(t testing.TB, s ratelimit.Store, d driver.Demand) ratelimit.Result {
	t.Helper()
	res, err := s.Take(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// WantRefused checks that s refuses d, and which source decided.
func WantRefused(t testing.TB, s ratelimit.Store, d driver.Demand, source ratelimit.Source) {
	t.Helper()
	if res := Ask(t, s, d); res.Allowed || res.Source != source {
		t.Fatalf("got %+v, want a refusal from %v", res, source)
	}
}

// WantCached repeats ds until the cache of s refuses them: a refusal is cached in the background.
// Until then each call takes a round trip.
func WantCached(t testing.TB, s ratelimit.Store, ds ...driver.Demand) (out []ratelimit.Result) {
	t.Helper()
	out = make([]ratelimit.Result, len(ds))
	for range 100_000 {
		if err := s.TakeAll(t.Context(), ds, out); err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(out, func(res ratelimit.Result) bool { return !res.Allowed }) {
			t.Fatalf("got %+v, want a refusal", out)
		}
		if out[0].Source == ratelimit.SourceCache {
			return out
		}
	}
	t.Fatalf("got %+v, want a refusal from the cache", out)
	return nil
}

// Decided takes until s answers: a connection that is being re-established returns errors for a
// while.
func Decided(t testing.TB, s ratelimit.Store, d driver.Demand) (res ratelimit.Result) {
	t.Helper()
	servers.Within(t, func() bool {
		var err error
		res, err = s.Take(t.Context(), d)
		return err == nil
	}, "no decision")
	return res
}

// PerDay is a limit whose window no test outlasts.
var PerDay = algorithm.SlidingLog(ratelimit.PerDay("day", 1000))

// Take returns a demand for one unit of key under PerDay.
func Take(key string) driver.Demand {
	return driver.Demand{Key: key, Algorithm: PerDay, N: 1}
}

// CalmStore returns a store on tgt that no test disturbs. Nil opts mean a long timeout.
func CalmStore(t testing.TB, tgt *servers.Target, opts *serverstore.Options) ratelimit.Store {
	t.Helper()
	if opts == nil {
		opts = &serverstore.Options{Timeout: Patient}
	}
	s, err := redisstore.New(tgt.Client(t), opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Recorded returns how many units of key are recorded, according to s.
func Recorded(t testing.TB, s ratelimit.Store, key string) int64 {
	t.Helper()
	d := Take(key)
	d.Op = driver.OpPeek
	res, err := s.Take(context.Background(), d)
	if err != nil {
		t.Fatal(err)
	}
	return res.Limit.Max - res.Remaining
}
