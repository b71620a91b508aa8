package conformance

import (
	"testing"

	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
)

// opener opens a store on a clock; nil means the store's own. Stores on the same clock share their
// states, and each server store has its own client.
type opener func(t testing.TB, now func() int64) driver.Store

// eachStore runs f, as a subtest, on the memory store, on go-redis on Redis, and on the newest
// Valkey on valkey-go, and on rueidis with a cache of refusals; in a full run on all libraries,
// with and without a cache, on every server and cluster. tgt is nil for the memory store.
func eachStore(t *testing.T, f func(t *testing.T, name string, tgt *servers.Target, open opener)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		var own driver.Store
		f(t, "memory", nil, func(_ testing.TB, now func() int64) driver.Store {
			if now != nil {
				return newMemoryStore(t, now)
			}
			if own == nil {
				own = newMemoryStore(t, nil)
			}
			return own
		})
	})
	servers.EachServer(t, func(t *testing.T, tgt *servers.Target) {
		for _, lib := range clients.Libraries {
			newest := tgt.Name == servers.Newest()
			opts := serverstore.Options{Prefix: servers.UniquePrefix(), Timeout: clients.Patient}
			usual := lib.Name == "go-redis" && !newest || lib.Name == "valkey-go" && newest
			if depth.Full || usual {
				t.Run(lib.Name, func(t *testing.T) {
					f(t, lib.Name+" on "+tgt.Name, tgt,
						func(t testing.TB, now func() int64) driver.Store {
							opts := opts
							opts.Now = now
							return lib.Client(t, clients.To(tgt)).NewStore(t, &opts)
						})
				})
			}
			if lib.Caching == nil || !depth.Full && (!newest || lib.Name != "rueidis") {
				continue
			}
			cachedPrefix := servers.UniquePrefix() // the other store runs at the same time
			t.Run(lib.Name+"-cached", func(t *testing.T) {
				f(t, lib.Name+", cached, on "+tgt.Name, tgt,
					func(t testing.TB, now func() int64) driver.Store {
						opts := opts
						opts.Prefix, opts.Now = cachedPrefix, now
						dial := clients.To(tgt)
						dial.Patient = true
						return lib.Caching(dial).Store(t, &opts)
					})
			})
		}
	})
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
