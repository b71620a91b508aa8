package faults

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
)

// chargedKey is a key of TestChargesWhileSlotMoves, with the units that were charged for certain
// and those of calls without an answer.
type chargedKey struct {
	limiter        *ratelimit.Limiter
	key            string
	charged, maybe atomic.Int64
}

// use takes a unit, and reserves and settles units, more than are reserved or fewer.
func (k *chargedKey) use(t *testing.T, r *rand.Rand) (calls int) {
	take := func() {
		calls++
		switch res, err := k.limiter.Allow(t.Context(), k.key); {
		case errors.Is(err, ratelimit.ErrOutcomeUnknown):
			k.maybe.Add(1)
		case err == nil && res.Allowed:
			k.charged.Add(1)
		}
	}
	take()
	calls++
	const held = 10
	reserved, err := k.limiter.Reserve(t.Context(), k.key, held)
	if err != nil {
		if errors.Is(err, ratelimit.ErrOutcomeUnknown) {
			k.maybe.Add(held)
		}
		return calls
	}
	if r.IntN(2) == 0 {
		take() // so that the settlement joins an earlier record
	}
	used := []int64{0, 3, held, 25}[r.IntN(4)]
	unknown := false
	for range 100 {
		calls++
		err = reserved.Commit(t.Context(), used)
		if err == nil {
			k.charged.Add(used)
			return calls
		}
		unknown = unknown || errors.Is(err, ratelimit.ErrOutcomeUnknown)
		if errors.Is(err, ratelimit.ErrNotHeld) {
			break
		}
	}
	t.Errorf("%s: %d units, outcome unknown %t: %v", k.key, used, unknown, err)
	return calls
}

// TestChargesWhileSlotMoves settles reservations, half of them for more than is held, while their
// slot moves to and fro: what is recorded is what was acknowledged.
func TestChargesWhileSlotMoves(t *testing.T) {
	const callers, keys = 8, 4 // of each client; two callers share a key, so they are in one batch
	enough := depth.Of(int64(3_000), 100_000)
	budget := algorithm.Budget(algorithm.SlidingLog(ratelimit.PerDay("day", driver.MaxUnits)))
	servers.OneImage(t, "redis:8", func(t *testing.T, image string) {
		cl := servers.StartCluster(t, image)
		admin := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cl.Addrs()})
		defer admin.Close()
		prefix := servers.UniquePrefix()
		var all []*chargedKey
		var calls, moves atomic.Int64
		var failed atomic.Bool
		var wg sync.WaitGroup
		defer wg.Wait()
		defer failed.Store(true)
		for _, lib := range clients.Libraries {
			client := lib.Client(t, clients.Dialing{Addrs: cl.Addrs(), Cluster: true})
			store := client.NewStore(t, &serverstore.Options{Prefix: prefix, Timeout: moveTimeout,
				Tag: func(string) string { return "moves" }})
			limiter, err := ratelimit.New(store, budget)
			if err != nil {
				t.Fatal(err)
			}
			for i := range keys {
				all = append(all, &chargedKey{limiter: limiter, key: fmt.Sprint(lib.Name, i)})
			}
			own := all[len(all)-keys:]
			for i := range callers {
				r := rand.New(rand.NewPCG(uint64(len(all)), uint64(i)))
				wg.Go(func() {
					for !failed.Load() && (calls.Load() < enough || moves.Load() < 4) {
						calls.Add(int64(own[i%keys].use(t, r)))
					}
				})
			}
		}
		done := make(chan struct{})
		go func() { wg.Wait(); close(done) }()
		stored := prefix + "{=moves}="
		for stopped := false; !stopped; {
			before, err := admin.MasterForKey(t.Context(), stored)
			if err != nil {
				t.Fatal(err)
			}
			moveSlot(t, admin, stored, func(i int, _ func(key string)) bool { return i < 10 })
			servers.Within(t, func() bool {
				admin.ReloadState(t.Context())
				after, err := admin.MasterForKey(t.Context(), stored)
				return err == nil && after.Options().Addr != before.Options().Addr
			}, "the slot has not moved")
			moves.Add(1)
			select {
			case <-done:
				stopped = true
			default:
			}
		}
		maybe := int64(0)
		for _, k := range all {
			res, err := k.limiter.Peek(t.Context(), k.key)
			if err != nil {
				t.Fatal(err)
			}
			recorded, charged, more := res.Limit.Max-res.Remaining, k.charged.Load(), k.maybe.Load()
			if recorded < charged || recorded > charged+more {
				t.Errorf("%s: %d units recorded, want %d to %d", k.key, recorded, charged,
					charged+more)
			}
			maybe += more
		}
		servers.Measured("%s slot moved %d times to and fro: %d calls, %d units without an answer",
			image, moves.Load(), calls.Load(), maybe)
	})
}
