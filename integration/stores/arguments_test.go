package stores

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
)

// callersOfMany are calls that make one full batch: 64, each with 32 demands on keys of its own.
const callersOfMany, demandsOfMany = 64, 32

// takeMany makes these calls, whose keys begin with key, and reports each that is not answered as
// allowed says.
func takeMany(t *testing.T, s driver.Store, key string, d driver.Demand, allowed bool) {
	t.Helper()
	var all sync.WaitGroup
	for i := range callersOfMany {
		ds, out := make([]driver.Demand, demandsOfMany), make([]driver.Result, demandsOfMany)
		for j := range ds {
			ds[j] = d
			ds[j].Key = fmt.Sprint(key, i, "-", j)
		}
		all.Go(func() {
			if err := s.TakeAll(t.Context(), ds, out); err != nil {
				t.Error(err)
				return
			}
			for j := range out {
				if out[j].Allowed != allowed {
					t.Errorf("%s: %+v, want Allowed %t", ds[j].Key, out[j], allowed)
					return
				}
			}
		})
	}
	all.Wait()
}

// TestArguments: a server that refuses a command of more than 3,999 words, as ElastiCache
// Serverless does, decides full batches of many limits, with holds too, in few commands.
func TestArguments(t *testing.T) {
	const most = 3999
	servers.OneImage(t, servers.Newest(), func(t *testing.T, image string) {
		server := servers.Start(t, image)
		control := servers.Connect(t, server.Addr)
		dialing := clients.Dialing{
			Addrs: []string{servers.Dialect{Arguments: most}.Speak(t, server.Addr)},
		}
		limit := ratelimit.PerHour("hour", 1)
		clients.Each(t, func(t *testing.T, lib clients.Library) {
			store := lib.Client(t, dialing).NewStore(t, &serverstore.Options{
				Timeout: clients.Patient, Linger: clients.Patient / 2, // until a batch is full
				Prefix: servers.UniquePrefix(),
			})
			for _, d := range []driver.Demand{
				{Algorithm: algorithm.GCRA(limit), N: 1},
				{Op: driver.OpHold, Algorithm: algorithm.Budget(algorithm.GCRA(limit)),
					N: 1, ID: 7},
			} {
				takeMany(t, store, "first", d, true) // loads the script
				before := servers.CountScripts(t, control)
				takeMany(t, store, "second", d, true)
				if n := servers.CountScripts(t, control) - before; n != 2 {
					t.Errorf("%v: %d commands for a full batch, want 2", d.Algorithm, n)
				}
				d.ID = min(d.ID, 1)
				takeMany(t, store, "second", d, false)
			}
			if lib.Caching != nil {
				cachesMany(t, lib.NewCache(t, dialing, clients.CacheOptions{
					Options: serverstore.Options{Prefix: servers.UniquePrefix()},
				}))
			}
		})
	})
}

// cachesMany: the refusals of such calls are looked at, and cached.
func cachesMany(t *testing.T, s clients.Caching) {
	t.Helper()
	d := driver.Demand{Algorithm: algorithm.GCRA(ratelimit.PerHour("hour", 1)), N: 1}
	takeMany(t, s, "cached", d, true)
	ctx, cancel := context.WithTimeout(t.Context(), servers.FaultTimeout)
	defer cancel()
	if err := servers.Poll(ctx, func() (bool, error) {
		takeMany(t, s, "cached", d, false)
		return s.Stats().Cache.Entries == callersOfMany, nil
	}); err != nil {
		t.Errorf("%+v, want %d entries: %v", s.Stats().Cache, callersOfMany, err)
	}
}
