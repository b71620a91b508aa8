package integration

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	redisstore "github.com/truewindow/ratelimit/backend/redis"
)

// patient is the timeout of stores whose subject is what they decide, not when: a busy machine may take its time.
const patient = 10 * time.Second

// opener opens a store on a clock, nil for the store's own. Stores opened on the same clock share their states, each server store with a
// client of its own.
type opener func(t testing.TB, now func() int64) ratelimit.Store

// eachStore runs f, as a subtest, on the memory store and on go-redis on every target; on the newest server also on valkey-go, and on rueidis with a cache
// of refusals; in a full run on all libraries, with and without a cache, on every target. tgt is nil for the memory store.
func eachStore(t *testing.T, f func(t *testing.T, name string, tgt *target, open opener)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		var own ratelimit.Store
		f(t, "memory", nil, func(_ testing.TB, now func() int64) ratelimit.Store {
			if now != nil {
				return newMemoryStore(t, now)
			}
			if own == nil {
				own = newMemoryStore(t, nil)
			}
			return own
		})
	})
	eachTarget(t, func(t *testing.T, tgt *target) {
		for _, lib := range libraries {
			newest := tgt.name == images[len(images)-1]
			opts := redisstore.Options{Prefix: uniquePrefix(), Timeout: patient}
			if full || lib.name == "go-redis" || newest && lib.name == "valkey-go" {
				t.Run(lib.name, func(t *testing.T) {
					f(t, lib.name+" on "+tgt.name, tgt, func(t testing.TB, now func() int64) ratelimit.Store {
						opts := opts
						opts.Now = now
						return lib.client(t, tgt.dialing()).newStore(t, &opts)
					})
				})
			}
			if lib.caching == nil || !full && (!newest || lib.name != "rueidis") {
				continue
			}
			opts.Prefix = uniquePrefix()
			t.Run(lib.name+"-cached", func(t *testing.T) {
				f(t, lib.name+", cached, on "+tgt.name, tgt, func(t testing.TB, now func() int64) ratelimit.Store {
					opts := opts
					opts.Now = now
					dial := tgt.dialing()
					dial.patient = true
					return lib.caching(dial).store(t, &opts)
				})
			})
		}
	})
}

// newRedisStore returns a store with a client of its own. Stores with the same prefix share their states.
func newRedisStore(t testing.TB, tgt *target, prefix string, now func() int64) *redisstore.Store {
	t.Helper()
	store, err := redisstore.New(tgt.client(t), ratelimit.FailClosed, &redisstore.Options{Prefix: prefix, Timeout: patient, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func newMemoryStore(t testing.TB, now func() int64) *memorystore.Store {
	t.Helper()
	store, err := memorystore.New(&memorystore.Options{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

// uniquePrefix keeps the keys of a test apart from those of all other tests and runs.
func uniquePrefix() string {
	return fmt.Sprintf("ratelimit-test:%x-%x:", time.Now().UnixNano(), rand.Uint32())
}
