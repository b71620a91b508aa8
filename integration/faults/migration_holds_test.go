package faults

import (
	"net"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
)

// TestHoldsWhileSlotMoves: while a slot moves, demands with holds, which have two keys, are
// decided, also if one of the two or both do not exist.
func TestHoldsWhileSlotMoves(t *testing.T) {
	servers.OneImage(t, "redis:8", func(t *testing.T, image string) {
		cl := servers.StartCluster(t, image)
		admin := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cl.Addrs()})
		defer admin.Close()
		clients.Each(t, func(t *testing.T, lib clients.Library) {
			prefix := servers.UniquePrefix()
			client := lib.Client(t, clients.Dialing{Addrs: cl.Addrs(), Cluster: true})
			s := client.NewStore(t, &serverstore.Options{Prefix: prefix, Timeout: moveTimeout,
				Tag: func(string) string { return lib.Name }})
			budget := algorithm.Budget(algorithm.SlidingLog(ratelimit.PerDay("day", 10)))
			stored := func(key string) string {
				return prefix + "{=" + lib.Name + "}=" + key + ":day:" + budget.Name()
			}
			ask := func(key string, op driver.Op, n, remaining int64) {
				t.Helper()
				d := driver.Demand{Key: key, Algorithm: budget, Op: op, N: n}
				if op > driver.OpReset {
					d.ID = 7
				}
				res, err := s.Take(t.Context(), d)
				if err != nil || !res.Allowed || res.Remaining != remaining {
					t.Fatalf("%v of %d units of %s: %+v, %v; want %d remaining",
						op, n, key, res, err, remaining)
				}
			}
			ask("both", driver.OpTake, 1, 9)
			ask("both", driver.OpHold, 4, 5)
			ask("log", driver.OpTake, 1, 9)
			ask("holds", driver.OpHold, 4, 6)
			from, to, others := servers.MigrateSlot(t, admin, stored(""))
			host, port, err := net.SplitHostPort(to.Options().Addr)
			if err != nil {
				t.Fatal(err)
			}
			ask("both", driver.OpTake, 1, 4) // on the first server
			ask("new", driver.OpHold, 4, 6)
			ask("new", driver.OpSettle, 3, 7)
			for _, key := range []string{stored("log"), stored("holds") + ":h", stored("both"),
				stored("both") + ":h"} {
				if err := from.Migrate(t.Context(), host, port, key, 0,
					servers.FaultTimeout).Err(); err != nil {
					t.Fatal(err)
				}
			}
			ask("log", driver.OpHold, 4, 5)
			ask("holds", driver.OpSettle, 2, 8)
			ask("both", driver.OpSettle, 1, 7)
			slot := admin.ClusterKeySlot(t.Context(), stored("")).Val()
			id := to.Do(t.Context(), "CLUSTER", "MYID").Val()
			for _, node := range append([]*redis.Client{to, from}, others...) {
				if err := node.Do(t.Context(), "CLUSTER", "SETSLOT", slot, "NODE",
					id).Err(); err != nil {
					t.Fatal(err)
				}
			}
			ask("log", driver.OpSettle, 4, 5)
		})
	})
}

// TestSettleMoreWhileSlotMoves: while a slot moves, a settlement of more than is held is recorded
// whole although it deletes the key of the holds, and demands that come in the same batch after one
// that deletes their key are decided.
func TestSettleMoreWhileSlotMoves(t *testing.T) {
	servers.EachImage(t, func(t *testing.T, image string) {
		cl := servers.StartCluster(t, image)
		admin := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cl.Addrs()})
		defer admin.Close()
		clients.EachOn(t, image, func(t *testing.T, lib clients.Library) {
			prefix := servers.UniquePrefix()
			client := lib.Client(t, clients.Dialing{Addrs: cl.Addrs(), Cluster: true})
			s := client.NewStore(t, &serverstore.Options{Prefix: prefix, Timeout: moveTimeout,
				Linger: moveTimeout / 20, // calls that begin together are one batch
				Tag:    func(string) string { return lib.Name }})
			plain, budget := clients.PerDay, algorithm.Budget(clients.PerDay)
			demand := func(key string, op driver.Op, n int64) driver.Demand {
				d := driver.Demand{Key: key, Algorithm: budget, Op: op, N: n}
				if op > driver.OpReset {
					d.ID = 7
				}
				return d
			}
			for _, key := range []string{"alone", "together", "batch"} {
				for _, d := range []driver.Demand{demand(key, driver.OpTake, 1),
					demand(key, driver.OpHold, 10), demand(key, driver.OpTake, 1)} {
					clients.Ask(t, s, d)
				}
			}
			other := driver.Demand{Key: "other", Algorithm: plain, N: 1}
			clients.Ask(t, s, other)
			stored := func(key, algorithm string) string {
				return prefix + "{=" + lib.Name + "}=" + key + ":day:" + algorithm
			}
			from, to, _ := servers.MigrateSlot(t, admin, stored("", ""))
			host, port, err := net.SplitHostPort(to.Options().Addr)
			if err != nil {
				t.Fatal(err)
			}

			settle := func(key string, more ...driver.Demand) {
				t.Helper()
				ds := append([]driver.Demand{demand(key, driver.OpSettle, 25)}, more...)
				out := make([]driver.Result, len(ds))
				err := s.TakeAll(t.Context(), ds, out)
				if err != nil || out[0].Units != 25 || out[0].Remaining != 1000-27 {
					t.Errorf("%s is settled: %+v, %v; want 25 units, 973 remaining", key, out, err)
				}
			}
			settle("alone")
			settle("together", other)

			var calls sync.WaitGroup
			begun := 0
			begin := func(call func()) { // in the batch that lingers
				begun++
				calls.Go(call)
				servers.Within(t, func() bool { return s.Stats().Queued >= begun },
					"the call is not queued")
			}
			take := func(d driver.Demand, remaining int64) {
				begin(func() {
					res, err := s.Take(t.Context(), d)
					if err != nil || !res.Allowed || res.Remaining != remaining {
						t.Errorf("%s in the same batch: %+v, %v; want %d remaining",
							d.Key, res, err, remaining)
					}
				})
			}
			begin(func() {
				settle("batch")
				// The take needs the state and the holds on one server.
				if err := from.Migrate(t.Context(), host, port, stored("batch", budget.Name()), 0,
					servers.FaultTimeout).Err(); err != nil {
					t.Error(err)
				}
			})
			take(demand("batch", driver.OpTake, 1), 1000-28)
			begin(func() {
				reset := other
				reset.Op = driver.OpReset
				if res, err := s.Take(t.Context(), reset); err != nil {
					t.Errorf("reset: %+v, %v", res, err)
				}
			})
			take(other, 1000-1)
			calls.Wait()
		})
	})
}
