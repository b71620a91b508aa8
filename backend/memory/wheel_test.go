package memorystore

import (
	"hash/maphash"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

// TestWheel compares the wheel with a map: exactly the expired entries are dropped, however the
// clock jumps and however small the batches are. Three limits of a key share a hash.
func TestWheel(t *testing.T) {
	var limits [3]driver.Demand
	for i := range limits {
		once := algorithm.SlidingLog(driver.PerSecond(strconv.Itoa(i), 1))
		limits[i] = driver.Demand{Algorithm: once, N: 1}
	}
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 5))
		now := int64(1_790_000_000_000_000)
		var sh shard
		var keys atomic.Int64
		sh.init(maphash.MakeSeed(), &keys, new(alarm), now)
		type name struct{ key, limit int }
		expires := map[name]int64{}
		find := func(n name) (uint64, driver.Demand, uint32) {
			d := limits[n.limit]
			d.Key = strconv.Itoa(n.key)
			hash := maphash.String(sh.seed, d.Key)
			return hash, d, sh.find(hash, d.Key, d.Algorithm, sh.known(d.Algorithm))
		}
		span := func() int64 { return 1 + r.Int64N(1<<(10+r.IntN(36))) }
		for range 3000 {
			if r.IntN(3) > 0 {
				n := name{r.IntN(500), r.IntN(3)}
				keep := span()
				hash, d, id := find(n)
				if _, there := expires[n]; there != (id != none) {
					t.Fatalf("seed %d: found %v, want %v", seed, id != none, there)
				}
				if id == none {
					sh.insert(hash, d.Key, sh.stateNameOf(d.Algorithm), []byte("s"), now+keep)
				} else {
					sh.store(id, []byte("s"), now, time.Duration(keep)*time.Microsecond)
				}
				expires[n] = now + keep
				continue
			}
			now += span() >> 6
			most := 1 + r.IntN(5)
			for i := 0; sh.nextExpiry.Load() <= now; i++ {
				sh.expire(now, most)
				if i > 100_000 {
					t.Fatalf("seed %d: expire does not come to an end", seed)
				}
			}
			for n, at := range expires {
				_, _, id := find(n)
				switch gone := id == none; {
				case gone && at > now:
					t.Fatalf("seed %d: dropped %d µs before it ran out", seed, at-now)
				case !gone && at <= now:
					t.Fatalf("seed %d: still there %d µs after it ran out", seed, now-at)
				case gone:
					delete(expires, n)
				}
			}
		}
	}
}

// TestCollision: keys and limits of one hash are kept apart.
func TestCollision(t *testing.T) {
	var sh shard
	var keys atomic.Int64
	sh.init(maphash.MakeSeed(), &keys, new(alarm), 0)
	const hash = 1<<32 - 1
	var ds []driver.Demand
	for i := range 50 {
		limit := driver.PerSecond(strconv.Itoa(i%5), 1)
		ds = append(ds, driver.Demand{Key: strconv.Itoa(i / 5),
			Algorithm: algorithm.SlidingLog(limit), N: 1})
	}
	find := func(d driver.Demand) uint32 {
		return sh.find(hash, d.Key, d.Algorithm, sh.known(d.Algorithm))
	}
	for i := range ds {
		if id := find(ds[i]); id != none {
			t.Fatalf("%d is taken for %d", i, id)
		}
		sh.insert(hash, ds[i].Key, sh.stateNameOf(ds[i].Algorithm), []byte{byte(i)}, 1)
	}
	for i := range ds {
		if id := find(ds[i]); id == none ||
			sh.entries.at(id).state[0] != byte(i) {
			t.Fatalf("%d is taken for %d", i, id)
		}
	}
}
