package scripts

import (
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
)

// TestPrograms: a server keeps 3k-1 scripts for decisions under any of k algorithms, whatever comes
// together in calls and batches. For all algorithms of this module they are few MB.
func TestPrograms(t *testing.T) {
	const callers, each = 8, 40
	hour := driver.PerHour("hour", 1_000_000)
	kinds := []driver.Algorithm{
		algorithm.SlidingLog(hour), algorithm.GCRA(hour), algorithm.FixedWindow(hour),
		algorithm.SlidingWindowCounter(hour), algorithm.Monthly("month", hour.Max),
		algorithm.Blocking("block", time.Hour), algorithm.InFlight("flight", 1000),
	}
	for _, a := range kinds[:6] {
		kinds = append(kinds, algorithm.Budget(a))
	}
	servers.EachImage(t, func(t *testing.T, image string) {
		server := servers.Start(t, image)
		control := servers.Connect(t, server.Addr)
		clients.EachOn(t, image, func(t *testing.T, lib clients.Library) {
			store := lib.Client(t, clients.Dialing{Addrs: []string{server.Addr}}).NewStore(t,
				&serverstore.Options{Timeout: clients.Patient, Prefix: servers.UniquePrefix()})
			ask := func(ds ...driver.Demand) {
				out := make([]driver.Result, len(ds))
				if err := store.TakeAll(t.Context(), ds, out); err != nil {
					t.Error(err)
				}
				for i := range out {
					if !out[i].Allowed || out[i].Limit != ds[i].Algorithm.Limit() {
						t.Errorf("%v: %+v", ds[i].Algorithm, out[i])
					}
				}
			}
			peek := func(key string, a driver.Algorithm) driver.Demand {
				return driver.Demand{Key: key, Algorithm: a, Op: driver.OpPeek, N: 1}
			}
			for _, a := range kinds {
				ask(peek("a", a))
				ask(peek("a", a), peek("b", a))
				ask(peek("a", a), peek("b", kinds[0]))
			}
			var wg sync.WaitGroup
			for caller := range uint64(callers) {
				wg.Go(func() {
					r := rand.New(rand.NewPCG(caller, 8))
					for range each {
						var ds []driver.Demand
						for _, i := range r.Perm(len(kinds))[:1+r.IntN(3)] {
							ds = append(ds, peek(strconv.Itoa(r.IntN(9)), kinds[i]))
						}
						ask(ds...)
					}
				})
			}
			wg.Wait()
			info := control.InfoMap(t.Context(), "memory").Val()["Memory"]
			field := func(name string) int {
				n, err := strconv.Atoi(info[name])
				if err != nil {
					t.Error(err)
				}
				return n
			}
			scripts := field("number_of_cached_scripts")
			if want := 3*len(kinds) - 1; scripts != want {
				t.Errorf("%d scripts are cached, want %d", scripts, want)
			}
			const most = 6 << 20
			bytes := field("used_memory_vm_eval") + field("used_memory_scripts_eval")
			if t.Logf("%d scripts with %d bytes", scripts, bytes); bytes > most {
				t.Errorf("%d bytes of scripts, want %d at most", bytes, most)
			}
		})
	})
}
