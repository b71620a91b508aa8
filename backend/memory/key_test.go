package memorystore

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/longkey"
	"github.com/truewindow/ratelimit/internal/testkit/heap"
)

// TestLongKeys: keys of any length have states of their own, even if one is the hash of another,
// and the longest take no more memory than short ones.
func TestLongKeys(t *testing.T) {
	s := open(t, nil)
	var keys []string
	for _, n := range []int{2, longkey.Max - 1, longkey.Max, longkey.Max + 1, longkey.Max + 2,
		64 << 10, 10 << 20} {
		for _, last := range []string{"a", "b"} {
			key := strings.Repeat("k", n-1) + last
			keys = append(keys, key, longkey.Shorten(key)[1:])
			if n > longkey.Max {
				keys = append(keys, longkey.Shorten(key)) // which is a long key itself
			}
		}
	}
	slices.Sort(keys)
	for i, key := range slices.Compact(keys) {
		must(t, s, demand(driver.OpTake, key, 2), true)
		ds := []driver.Demand{demand(driver.OpTake, key, 1),
			demand(driver.OpPeek, "other"+strconv.Itoa(i), 1)}
		out := make([]driver.Result, 2)
		if err := s.TakeAll(t.Context(), ds, out); err != nil || !out[0].Allowed ||
			ds[0].Key != key {
			t.Fatalf("key %d: %+v, %v", i, out, err)
		}
		must(t, s, demand(driver.OpTake, key, 1), false)
	}
	for i := range s.shards {
		sh := &s.shards[i]
		for _, chunk := range sh.entries.chunks {
			for j := range chunk {
				if n := len(chunk[j].key); n > longkey.Max+1 {
					t.Errorf("a key is held in %d bytes", n)
				}
			}
		}
	}
}

// TestFloodOfLongKeys: keys of 64 KiB take no more memory than as many short ones.
func TestFloodOfLongKeys(t *testing.T) {
	const n = 1000
	empty := heap.Live()
	s := open(t, nil)
	long := strings.Repeat("k", 64<<10)
	for i := range n {
		must(t, s, demand(driver.OpTake, strconv.Itoa(i)+long, 1), true)
	}
	if grown := heap.Live() - empty; grown > 1<<20 {
		t.Errorf("%d keys of %d bytes take %d bytes", n, len(long), grown)
	}
	if s.Stats().Keys != n {
		t.Errorf("%d states", s.Stats().Keys)
	}
}
