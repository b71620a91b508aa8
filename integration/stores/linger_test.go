package stores

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
)

// TestLinger: calls of one process that arrive one after the other are decided by one script.
// Processes that share a key admit its limit.
func TestLinger(t *testing.T) {
	const processes, batch = 3, 64 // which is full, and so is sent at once
	servers.OneImage(t, "redis:8", func(t *testing.T, image string) {
		s := servers.Start(t, image)
		control := servers.Connect(t, s.Addr)
		clients.Each(t, func(t *testing.T, lib clients.Library) {
			stores := make([]clients.Probing, processes)
			for i := range stores {
				stores[i] = lib.Client(t, clients.Dialing{Addrs: []string{s.Addr}}).NewStore(t,
					&serverstore.Options{Timeout: clients.Patient, Linger: clients.Patient / 2})
			}
			round := func(key string) int64 {
				var admitted atomic.Int64
				var all sync.WaitGroup
				for i := range processes * batch {
					var arrival sync.WaitGroup
					arrival.Add(1)
					ctx := &arriving{Context: t.Context(), arrived: arrival.Done}
					all.Go(func() {
						d := clients.Take(key)
						d.N = 9
						res, err := stores[i%processes].Take(ctx, d)
						if err != nil {
							t.Error(err)
						}
						if res.Allowed {
							admitted.Add(d.N)
						}
					})
					arrival.Wait()
				}
				all.Wait()
				return admitted.Load()
			}
			round(servers.FreshKey(t)) // so that the server has the scripts
			before := servers.CountScripts(t, control)
			if got := round(servers.FreshKey(t)); got != 999 {
				t.Errorf("%d units of 1,000 are admitted by nines, want 999", got)
			}
			if n := servers.CountScripts(t, control) - before; n != processes {
				t.Errorf("%d scripts ran, want one for each of %d processes", n, processes)
			}
		})
	})
}
