//go:build !race

package denycache

import (
	"math/bits"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend/internal/keyspace"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/testkit/heap"
)

// keysCut returns a function that makes the i-th key of n bytes, each a part of a string of its own
// of so many bytes.
func keysCut(n, from int) func(i int) string {
	return func(i int) string {
		number := strconv.Itoa(i)
		return (number + strings.Repeat("k", from-len(number)))[:n]
	}
}

// days are limits that other refusals in this test are not under.
var days = []driver.Algorithm{
	algorithm.SlidingLog(driver.PerDay("day", 1)),
	algorithm.SlidingLog(driver.PerDay("other", 1)),
	algorithm.SlidingLog(driver.PerDay("another", 1)),
}

// TestCacheMemory fills caches with more refusals than they may hold. They hold no more memory than
// their bound, and count at most a third more than they hold.
func TestCacheMemory(t *testing.T) {
	keys, err := keyspace.New("rl:", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name  string
		bound int64
		n     int
		key   func(i int) string
		more  []driver.Algorithm // under which demands are refused beside the first
	}{
		{"short", 8 << 20, 60_000, keysCut(8, 8), nil},
		{"short, in maps that have just grown", 13 << 20, 80_000, keysCut(8, 8), nil},
		{"addresses", 8 << 20, 60_000, keysCut(39, 39), nil},
		{"short, of large strings", 8 << 20, 20_000, keysCut(16, 16<<10), nil},
		{"longest held whole", 8 << 20, 30_000, keysCut(128, 128), nil},
		{"long", 8 << 20, 30_000, keysCut(129, 129), nil},
		{"two limits", 8 << 20, 40_000, keysCut(8, 8), days[:1]},
		{"four limits", 8 << 20, 40_000, keysCut(39, 39), days},
		{"two limits, long", 8 << 20, 20_000, keysCut(129, 129), days[:1]},
		{"very long", 8 << 20, 20_000, keysCut(8<<10, 8<<10), nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			empty := heap.Live()
			c := New(serverstore.OpenOptions{CacheBytes: int(tt.bound), CacheEntries: 1 << 20})
			for i := range tt.n {
				ds := []driver.Demand{denied(tt.key(i), 1)}
				for _, a := range tt.more {
					ds = append(ds, driver.Demand{Key: ds[0].Key, Algorithm: a, N: 1})
				}
				g := groupOf(ds...)
				for j := range ds {
					g.Keys[j], g.Results[j] = keys.Key(ds[j]), refusedFor(time.Hour)
				}
				c.fill(sendGroups(c, g).reply(g.Results...), g.Results...)
				if i%1000 == 0 && !cached(c, ds...) {
					t.Fatalf("refusal %d is not given again", i)
				}
			}
			full, stats := heap.Live(), c.Stats()
			runtime.KeepAlive(c)
			c = nil
			// What earlier tests let go of meanwhile makes the first figure too small, the second
			// too large.
			held, freed := full-empty, full-heap.Live()
			t.Logf("%d entries hold %d bytes, %d each, and are counted as %d, %d each",
				stats.Entries, held, held/stats.Entries, stats.Bytes, stats.Bytes/stats.Entries)
			if stats.Bytes > tt.bound || stats.Bytes < tt.bound*9/10 {
				t.Errorf("%d bytes are counted, the bound is %d", stats.Bytes, tt.bound)
			}
			if held > tt.bound {
				t.Errorf("%d bytes are held, the bound is %d", held, tt.bound)
			}
			most := max(held, freed) * 4 / 3
			if bits.UintSize == 32 { // what is counted is what 64 bits take
				most = most * 4 / 3
			}
			if stats.Bytes > most {
				t.Errorf("%d bytes are counted and %d held", stats.Bytes, held)
			}
		})
	}
}
