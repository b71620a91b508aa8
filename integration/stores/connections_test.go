package stores

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
)

// TestRedisLostAnswer: if a connection is cut after the script has run, the call fails and the
// script is not sent again, although the client libraries repeat commands that they may repeat.
func TestRedisLostAnswer(t *testing.T) {
	t.Parallel()
	servers.EachTarget(t, func(t *testing.T, tgt *servers.Target) {
		calm := clients.CalmStore(t, tgt, nil)
		lose := func(t *testing.T, lib clients.Library, style clients.Style, alone bool) {
			var c clients.Cutter
			d := clients.To(tgt)
			d.Dial, d.Style = c.Dial, style
			client := lib.Client(t, d)
			faulty := client.NewStore(t,
				&serverstore.Options{Timeout: clients.Patient, NoBatching: alone})
			// loads the script
			if _, err := faulty.Take(t.Context(), clients.Take(servers.FreshKey(t))); err != nil {
				t.Fatal(err)
			}
			c.On.Store(true)
			for tries, lost := 0, 0; lost < 10; tries++ {
				before := c.Cut.Load()
				key := servers.FreshKey(t)
				_, err := faulty.Take(t.Context(), clients.Take(key))
				if !errors.Is(err, ratelimit.ErrOutcomeUnknown) {
					t.Fatalf("got %v, want ErrOutcomeUnknown", err)
				}
				n := c.Cut.Load() - before
				if n == 0 && tries < 100 && clients.Recorded(t, calm, key) == 0 {
					continue // sent on a connection that was already cut
				}
				if lost++; n != 1 {
					t.Fatalf("%d answers were cut, want 1", n)
				}
				if n := clients.Recorded(t, calm, key); n != 1 {
					t.Fatalf("%d units recorded for one Take, want 1", n)
				}
			}

			// The fault is real: the client repeats a script that it may repeat.
			counter, control := servers.FreshKey(t), tgt.Client(t)
			within, cancel := context.WithTimeout(t.Context(), clients.Patient)
			defer cancel()
			ended := make(chan error, 1)
			go func() {
				ended <- client.Retry(within, "return redis.call('INCR', KEYS[1])",
					counter)
			}()
			for ran := 0; ran < 2; time.Sleep(time.Millisecond) {
				if ran, _ = control.Get(t.Context(), counter).Int(); within.Err() != nil {
					t.Fatalf("a script that may be sent again ran %d times, want 2 or more: this "+
						"test proves nothing", ran)
				}
			}
			cancel()
			<-ended

			c.On.Store(false)
			clients.Decided(t, faulty, clients.Take(servers.FreshKey(t)))
		}
		clients.EachOn(t, tgt.Name, func(t *testing.T, lib clients.Library) {
			if !lib.Piped {
				t.Run("together", func(t *testing.T) { lose(t, lib, clients.Style{}, false) })
				t.Run("alone", func(t *testing.T) { lose(t, lib, clients.Style{}, true) })
				return
			}
			for _, style := range clients.Styles {
				t.Run(style.Name+"/together", func(t *testing.T) { lose(t, lib, style, false) })
				if depth.Full || style == clients.Styles[0] {
					t.Run(style.Name+"/alone", func(t *testing.T) { lose(t, lib, style, true) })
				}
			}
		})
	})
}

// TestRedisRedirects: MOVED and ASK are followed, and a demand whose answer is lost after a
// redirect is recorded once.
func TestRedisRedirects(t *testing.T) {
	t.Parallel()
	servers.EachImage(t, func(t *testing.T, image string) {
		cl := servers.StartCluster(t, image)
		right := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cl.Addrs()})
		defer right.Close()
		calmStore := func(opts *serverstore.Options) ratelimit.Store {
			return clients.GoRedis(right).NewStore(t, opts)
		}
		calm := &serverstore.Options{Timeout: clients.Patient}
		migrating := &serverstore.Options{Timeout: clients.Patient,
			Tag: func(string) string { return "migrating" }}
		old, other := servers.FreshKey(t), servers.FreshKey(t)
		if _, err := calmStore(migrating).Take(t.Context(), clients.Take(old)); err != nil {
			t.Fatal(err)
		}

		clients.EachOn(t, image, func(t *testing.T, lib clients.Library) {
			var c clients.Cutter
			open := func() ratelimit.Store {
				return misled(t, lib, cl, &c).
					NewStore(t, &serverstore.Options{Timeout: clients.Patient})
			}
			for range 10 {
				takeAndLose(t, open, calmStore(calm), &c, servers.FreshKey(t))
			}
			if n := c.Moved.Load(); n < 20 {
				t.Errorf("got %d MOVED for 20 Takes, want 20 or more", n)
			}
		})

		servers.MigrateSlot(t, right, "{=migrating}")
		clients.EachOn(t, image, func(t *testing.T, lib clients.Library) {
			var c clients.Cutter
			open := func() ratelimit.Store {
				d := clients.Dialing{Addrs: cl.Addrs(), Cluster: true, Dial: c.Dial}
				return lib.Client(t, d).NewStore(t, migrating)
			}
			takeAndLose(t, open, calmStore(migrating), &c, servers.FreshKey(t))
			if n := c.Asked.Load(); n < 2 {
				t.Errorf("got %d ASK for 2 Takes, want 2 or more", n)
			}

			// old is where the slot is, and other is where it is going.
			hurried := *migrating
			hurried.Timeout = 4 * time.Second
			s := lib.Client(t, clients.Dialing{Addrs: cl.Addrs(), Cluster: true}).
				NewStore(t, &hurried)
			err := s.TakeAll(t.Context(),
				[]driver.Demand{clients.Take(old), clients.Take(other)},
				make([]ratelimit.Result, 2))
			wantUnavailable(t, err, "TRYAGAIN")
			if a, b := clients.Recorded(t, calmStore(migrating), old),
				clients.Recorded(t, calmStore(migrating), other); a != 1 || b != 0 {
				t.Errorf("TRYAGAIN: %d and %d units recorded, want 1 and 0", a, b)
			}
		})
	})
}

// misled returns a client of cl that sends to the wrong primaries until it is redirected, and loses
// the answers that c loses.
func misled(
	t *testing.T, lib clients.Library, cl *servers.Cluster, c *clients.Cutter,
) clients.Client {
	t.Helper()
	addrs := cl.Addrs()
	if !lib.Piped {
		right := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
		defer right.Close()
		wrong := redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: wrongSlots(t, right),
			Dialer: c.Dial})
		t.Cleanup(func() { wrong.Close() })
		return clients.GoRedis(wrong)
	}
	var told sync.Map // primaries that have redirected
	c.OnMoved = func(by string) { told.Store(by, true) }
	return lib.Client(t, clients.Dialing{Addrs: addrs, Cluster: true,
		Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			next := addrs[(slices.Index(addrs, addr)+1)%len(addrs)]
			if _, ok := told.Load(next); !ok {
				addr = next
			}
			return c.Dial(ctx, network, addr)
		}})
}

// wrongSlots returns the slots of a cluster, each assigned to another primary than its own.
func wrongSlots(
	t *testing.T, client *redis.ClusterClient,
) func(context.Context) ([]redis.ClusterSlot, error) {
	t.Helper()
	//nolint:staticcheck // ClusterOptions.ClusterSlots requires this type
	slots, err := client.ClusterSlots(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	wrong := slices.Clone(slots)
	for i := range slots {
		wrong[i].Nodes = slots[(i+1)%len(slots)].Nodes
	}
	return func(context.Context) ([]redis.ClusterSlot, error) { return wrong, nil }
}

// takeAndLose takes twice through redirects, each time on a new store, and loses the second answer.
func takeAndLose(
	t *testing.T, open func() ratelimit.Store, calm ratelimit.Store, c *clients.Cutter, key string,
) {
	t.Helper()
	if res, err := open().Take(t.Context(), clients.Take(key)); err != nil || !res.Allowed {
		t.Fatalf("got %+v, %v; want an admission", res, err)
	}
	faulty := open()
	before := c.Cut.Load()
	c.On.Store(true)
	_, err := faulty.Take(t.Context(), clients.Take(key))
	c.On.Store(false)
	if !errors.Is(err, ratelimit.ErrOutcomeUnknown) {
		t.Fatalf("lost answer: got %v, want ErrOutcomeUnknown", err)
	}
	if n := c.Cut.Load() - before; n != 1 {
		t.Fatalf("%d answers were cut, want 1", n)
	}
	if n := clients.Recorded(t, calm, key); n != 2 {
		t.Fatalf("%d units recorded for two Takes, want 2", n)
	}
}

// wantUnavailable checks that err says that nothing was recorded and contains the server's answer.
func wantUnavailable(t *testing.T, err error, answer string) {
	t.Helper()
	if !errors.Is(err, ratelimit.ErrUnavailable) || errors.Is(err, ratelimit.ErrOutcomeUnknown) {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
	if !strings.Contains(fmt.Sprint(err), answer) {
		t.Errorf("got %v, want the server's %s", err, answer)
	}
}

// TestRedisNothingSentLate: a demand that failed as unsent is not sent later, even by a client that
// ignores the context.
func TestRedisNothingSentLate(t *testing.T) {
	servers.EachTarget(t, func(t *testing.T, tgt *servers.Target) {
		client := tgt.Client(t)
		s, calm := clients.GoRedis(client).NewStore(t, nil), clients.CalmStore(t, tgt, nil)
		// opens the connection
		clients.Ask(t, clients.GoRedis(client).NewStore(t,
			&serverstore.Options{Timeout: clients.Patient}), clients.Take(servers.FreshKey(t)))
		l := late{until: make(chan struct{}), done: make(chan error, 8)}
		client.AddHook(&l)
		key := servers.FreshKey(t)
		_, err := s.Take(t.Context(), clients.Take(key))
		if !errors.Is(err, ratelimit.ErrUnavailable) ||
			errors.Is(err, ratelimit.ErrOutcomeUnknown) {
			t.Errorf("got %v, want ErrUnavailable", err)
		}
		close(l.until)
		if err := <-l.done; !redis.HasErrorPrefix(err, "NOSCRIPT") {
			t.Errorf("the late command got %v, want NOSCRIPT: it must not run a script", err)
		}
		if n := clients.Recorded(t, calm, key); n != 0 {
			t.Errorf("%d units recorded, want none", n)
		}
	})
}

// late delays commands and then sends them in spite of the context.
type late struct {
	until chan struct{}
	done  chan error
}

func (l *late) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *late) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		<-l.until
		err := next(context.WithoutCancel(ctx), cmd)
		l.done <- err
		return err
	}
}

func (l *late) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestRedisSlowDial: dialing continues after the caller that started it has left, and nothing is
// sent on the connection for callers that have left.
func TestRedisSlowDial(t *testing.T) {
	server := servers.Start(t, servers.Images()[0])
	for _, lib := range clients.Libraries {
		if !lib.Piped { // TestRedisNothingSentLate tests the others
			continue
		}
		t.Run(lib.Name+"/together", func(t *testing.T) { dialSlowly(t, server, lib, false) })
		t.Run(lib.Name+"/alone", func(t *testing.T) { dialSlowly(t, server, lib, true) })
	}
}

func dialSlowly(t *testing.T, server *servers.Server, lib clients.Library, alone bool) {
	var slow atomic.Bool
	var begun, hurried atomic.Int64
	release := make(chan struct{})
	d := clients.Dialing{Addrs: []string{server.Addr},
		Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if slow.Load() {
				begun.Add(1)
				if _, ok := ctx.Deadline(); ok {
					hurried.Add(1)
				}
				select {
				case <-ctx.Done():
					hurried.Add(1)
				case <-release:
				}
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		}}
	s, calm := lib.Client(t, d).NewStore(t, &serverstore.Options{NoBatching: alone}),
		servers.Connect(t, server.Addr)
	slow.Store(true)
	if err := calm.Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal").Err(); err != nil {
		t.Fatal(err)
	}
	key := servers.FreshKey(t)
	ctx, cancel := context.WithTimeout(t.Context(), servers.FaultTimeout)
	defer cancel()
	// the first calls may use the connection that was killed
	if err := servers.Poll(ctx, func() (bool, error) {
		_, err := s.Take(t.Context(), clients.Take(key))
		if !errors.Is(err, driver.ErrUnavailable) {
			return false, fmt.Errorf("%v, want ErrUnavailable: there is no connection", err)
		}
		return begun.Load() > 0, nil
	}); err != nil {
		t.Fatal(err)
	}
	for range 3 { // the first call times out meanwhile
		s.Take(t.Context(), clients.Take(servers.FreshKey(t)))
	}
	close(release)
	if err := servers.Poll(ctx, func() (bool, error) {
		_, err := s.Take(t.Context(), clients.Take(servers.FreshKey(t)))
		return err == nil, nil
	}); err != nil {
		t.Fatal(err)
	}
	if n := hurried.Load(); n != 0 {
		t.Errorf("%d dials were given up with their callers, want none", n)
	}
	if n := clients.Recorded(t, clients.GoRedis(calm).
		NewStore(t, &serverstore.Options{Timeout: clients.Patient}), key); n != 0 {
		t.Errorf("%d units recorded, want none", n)
	}
}

// TestRedisFrozen: while a server under load is frozen, every call returns by its deadline, no
// decision is wrong and no goroutine leaks. Then the store recovers by itself.
func TestRedisFrozen(t *testing.T) {
	servers.EachImage(t, func(t *testing.T, image string) {
		server := servers.Start(t, image)
		clients.EachOn(t, image, func(t *testing.T, lib clients.Library) { freeze(t, server, lib) })
	})
}

func freeze(t *testing.T, server *servers.Server, lib clients.Library) {
	client := lib.Client(t, clients.Dialing{Addrs: []string{server.Addr}})
	s, calm := client.NewStore(t, nil),
		client.NewStore(t, &serverstore.Options{Timeout: clients.Patient})
	key := servers.FreshKey(t)
	if _, err := calm.Take(t.Context(), clients.Take(key)); err != nil {
		t.Fatal(err)
	}
	const own = 8 // goroutines that a client may still start for its connections
	goroutines := runtime.NumGoroutine()

	var allowed, unknown atomic.Int64
	allowed.Add(1)
	slowest := make([]time.Duration, 32)
	server.Pause(t)
	watched := servers.WatchStandstill()
	var wg sync.WaitGroup
	for i := range slowest {
		wg.Go(func() {
			for range 3 {
				start := time.Now()
				res, err := s.Take(context.Background(), clients.Take(key))
				slowest[i] = max(slowest[i], time.Since(start))
				switch {
				case err == nil && res.Allowed:
					allowed.Add(1)
				case errors.Is(err, ratelimit.ErrOutcomeUnknown):
					unknown.Add(1)
				case !errors.Is(err, ratelimit.ErrUnavailable):
					t.Errorf("got %v, want ErrUnavailable", err)
				}
			}
		})
	}
	wg.Wait()
	// The target is 110ms; the rest is for a machine busy with other tests.
	d, still := slices.Max(slowest), watched()
	servers.Measured("%s frozen, %s: slowest of 96 calls with a deadline of 100ms answered after "+
		"%v", server.Image, lib.Name, d.Round(100*time.Microsecond))
	if d > servers.LatestAnswer(100*time.Millisecond, still) {
		t.Errorf("a call returned after %v, want about 100ms; the machine stood still for %v",
			d, still)
	}
	if unknown.Load() == 0 || allowed.Load() != 1 {
		t.Errorf("a frozen server: %d outcomes unknown and %d admitted, want some and none",
			unknown.Load(), allowed.Load()-1)
	}

	server.Unpause(t)
	ctx, cancel := context.WithTimeout(t.Context(), servers.FaultTimeout)
	defer cancel()
	if err := servers.Poll(ctx, func() (bool, error) {
		res, err := s.Take(ctx, clients.Take(key))
		if err == nil && res.Allowed {
			allowed.Add(1)
		} else if errors.Is(err, ratelimit.ErrOutcomeUnknown) {
			unknown.Add(1)
		}
		return err == nil, nil
	}); err != nil {
		t.Fatalf("the store did not recover: %v", err)
	}
	if err := servers.Poll(ctx,
		func() (bool, error) { return runtime.NumGoroutine() <= goroutines+own, nil }); err != nil {
		t.Errorf("%d goroutines, want at most %d", runtime.NumGoroutine(), goroutines+own)
	}
	if n := clients.Recorded(t, calm, key); n < allowed.Load() ||
		n > allowed.Load()+unknown.Load() {
		t.Errorf("%d units recorded for %d admitted and %d of unknown outcome", n,
			allowed.Load(), unknown.Load())
	}
}
