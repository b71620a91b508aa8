package stores

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/faultproxy"
	"github.com/truewindow/ratelimit/integration/servers"
	"github.com/truewindow/ratelimit/internal/testkit/budgetmodel"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
	"github.com/truewindow/ratelimit/layer"
)

// TestBudgetStorm: with contexts that end and answers that get lost at random, no more is held and
// recorded than the limits allow, and in the end exactly what was used is recorded under each
// budget, although every settlement is repeated. The end is after the time-out, since a hold whose
// answer is lost may arrive after its own settlement.
func TestBudgetStorm(t *testing.T) {
	storms := depth.Of(2, 100)
	servers.EachServer(t, func(t *testing.T, tgt *servers.Target) {
		clients.EachOn(t, tgt.Name, func(t *testing.T, lib clients.Library) {
			calm := clients.CalmStore(t, tgt, nil)
			var c clients.Cutter
			var all []*budgetmodel.Storm
			unknown := 0
			for seed := range storms {
				storm := budgetStorm(t, tgt, lib, &c, uint64(seed))
				unknown += storm.Unknown()
				all = append(all, storm)
			}
			if c.Cut.Load() == 0 {
				t.Error("no answer was lost: this test proves nothing")
			}
			for _, storm := range all {
				servers.Within(t, func() bool {
					return storm.Check(t.Context(), calm, true) == nil
				}, "more is charged than was used, after the time-out of holds of unknown outcome")
			}
			servers.Measured("%s: %d storms, %d answers lost, %d outcomes unknown",
				t.Name(), storms, c.Cut.Load(), unknown)
		})
	})
}

// budgetStorm makes calls from two clients while c loses some answers.
func budgetStorm(
	t *testing.T, tgt *servers.Target, lib clients.Library, c *clients.Cutter, seed uint64,
) *budgetmodel.Storm {
	t.Helper()
	limits := budgetLimits
	limits.Timeout = 5 * time.Second
	storm := &budgetmodel.Storm{
		Key: servers.FreshKey(t), Workers: 16, Seed: seed, MayFail: true,
		Patience: func(r *rand.Rand) time.Duration {
			return time.Duration(r.Int64N(int64(10 * time.Millisecond)))
		},
	}
	for range 2 {
		dialing := clients.To(tgt)
		dialing.Dial = c.Dial
		store := lib.Client(t, dialing).
			NewStore(t, &serverstore.Options{Timeout: clients.Patient})
		storm.Clients = append(storm.Clients, budgetmodel.NewClient(t, store, limits))
	}
	c.On.Store(true)
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-done:
				c.On.Store(false)
				return
			case <-tick.C:
				c.On.Store(i%4 == 3)
			}
		}
	})
	err := errors.Join(storm.Round(15), storm.Settle())
	close(done)
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return storm
}

// TestBudgetStormInFaults: in storms of three clients on a server that is stopped, cut off from
// some of them or loses answers, alone and under layer.Degraded, exactly what was used is charged
// in the end, although every settlement is repeated, in part by other clients. Under Degraded as
// many units more may be held as the clients have shares.
func TestBudgetStormInFaults(t *testing.T) {
	t.Parallel() // it mostly waits
	storms := depth.Of(2, 50)
	servers.OneImage(t, "valkey/valkey:9", func(t *testing.T, image string) {
		server := servers.Start(t, image)
		calm := clients.CalmStore(t, &servers.Target{Addrs: []string{server.Addr}}, nil)
		for _, degraded := range []bool{false, true} {
			t.Run(map[bool]string{false: "store", true: "degraded"}[degraded], func(t *testing.T) {
				for seed := range storms {
					faultyStorm(t, server, calm, uint64(seed), degraded)
				}
			})
		}
	})
}

func faultyStorm(
	t *testing.T, server *servers.Server, calm ratelimit.Store, seed uint64, degraded bool,
) {
	t.Helper()
	limits := budgetLimits
	limits.Timeout = 4 * time.Second
	storm := &budgetmodel.Storm{Key: servers.FreshKey(t), Workers: 12, Seed: seed, MayFail: true}
	var proxies []*faultproxy.Proxy
	var layers []*layer.Degraded
	for _, lib := range clients.Libraries {
		proxy := servers.Proxy(t, server.Addr)
		var store ratelimit.Store = lib.
			Client(t, clients.Dialing{Addrs: []string{proxy.Addr()}, Prompt: true}).
			NewStore(t, &serverstore.Options{Timeout: 150 * time.Millisecond})
		if degraded {
			l, err := layer.NewDegraded(store,
				&layer.DegradedOptions{Instances: len(clients.Libraries)})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			store, layers = l, append(layers, l)
			storm.Instances = int64(len(clients.Libraries))
		}
		proxies = append(proxies, proxy)
		storm.Clients = append(storm.Clients, budgetmodel.NewClient(t, store, limits))
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	faults := 0
	wg.Go(func() { faults = disturb(t, server, proxies, seed, done) })
	err := errors.Join(storm.Round(40), storm.Settle())
	close(done)
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	unconfirmed := func() (n int64) {
		for _, l := range layers {
			n += l.Stats().Unconfirmed
		}
		return n
	}
	ctx, cancel := context.WithTimeout(t.Context(), servers.FaultTimeout)
	defer cancel()
	if servers.Poll(ctx, func() (bool, error) {
		for _, l := range layers {
			if stats := l.Stats(); stats.Pending > 0 || stats.Holds > 0 {
				err = fmt.Errorf("the store is not told: %+v", stats)
				return false, nil
			}
		}
		err = storm.CheckWithin(t.Context(), calm, true, unconfirmed())
		return err == nil, nil
	}) != nil {
		t.Errorf("seed %d: in the end: %v", seed, err)
	}
	servers.Measured("%s, seed %d: %d faults, %d outcomes unknown, %d units forced without an "+
		"answer", t.Name(), seed, faults, storm.Unknown(), unconfirmed())
	if faults == 0 {
		t.Error("there was no fault: this test proves nothing")
	}
}

// disturb causes faults until done is closed, and returns how many.
func disturb(
	t *testing.T, server *servers.Server, proxies []*faultproxy.Proxy, seed uint64,
	done <-chan struct{},
) (n int) {
	r := rand.New(rand.NewPCG(seed, 0))
	pause := func() (over bool) {
		select {
		case <-done:
			return true
		case <-time.After(time.Duration(50+r.IntN(250)) * time.Millisecond):
			return false
		}
	}
	for over := false; !over; over = pause() {
		proxy := proxies[r.IntN(len(proxies))]
		switch kind := r.IntN(6); kind {
		case 0:
			server.Signal(t, "SIGSTOP")
			pause()
			server.Signal(t, "SIGCONT")
		case 1:
			proxy.Set(faultproxy.Fault{Kind: faultproxy.Refuse})
			proxy.CutAll()
			pause()
		default:
			proxy.Set([]faultproxy.Fault{
				{Kind: faultproxy.Freeze}, {Kind: faultproxy.LoseRequests},
				{Kind: faultproxy.LoseAnswers},
				{Kind: faultproxy.CutAfter, Holding: "evalsha", Times: 3},
			}[kind-2])
			pause()
		}
		proxy.Heal()
		n++
	}
	return n
}
