package clocks

import (
	"testing"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
)

// A timed is a store of one client on a server whose clock steps.
type timed struct {
	name   string
	store  ratelimit.Store
	cached bool // it caches refusals
}

// timedStores returns a store through every client and, through each client that can, one that
// caches refusals. All share their states.
func timedStores(t testing.TB, d clients.Dialing) []timed {
	t.Helper()
	opts := serverstore.Options{Prefix: servers.UniquePrefix(), Timeout: clients.Patient}
	var all []timed
	for _, lib := range clients.Libraries {
		all = append(all, timed{lib.Name, lib.Client(t, d).NewStore(t, &opts), false})
		if lib.Caching != nil {
			all = append(all, timed{lib.Name + ", cached", lib.Caching(d).Store(t, &opts), true})
		}
	}
	return all
}
