package stores

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
)

// A holdup dials connections that hold scripts back while it is shut, and that can be cut after a
// number of answers.
type holdup struct {
	mu   sync.Mutex
	shut chan struct{} // nil: open

	held    atomic.Int64 // writes that were held back
	batches atomic.Int64 // writes of several scripts
	keep    atomic.Int64 // answers that pass on each connection; negative: all
	lost    atomic.Int64 // connections that lost answers
	moved   atomic.Int64
	asked   atomic.Int64
	crossed atomic.Int64 // refusals of keys of several slots
	// what to do at such a refusal, or nil
	onCrossed func()
}

func newHoldup() *holdup {
	h := new(holdup)
	h.keep.Store(-1)
	return h
}

// close shuts h until open is called.
func (h *holdup) close() (open func()) {
	c := make(chan struct{})
	h.mu.Lock()
	defer h.mu.Unlock()
	h.shut = c
	h.held.Store(0)
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.shut = nil
		close(c)
	}
}

func (h *holdup) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &holdupConn{Conn: conn, h: h}, nil
}

type holdupConn struct {
	net.Conn
	h *holdup
	// whether the last write has several scripts, or one after ASKING
	many atomic.Bool
}

func (c *holdupConn) Write(b []byte) (int, error) {
	scripts := bytes.Count(b, []byte("\r\neval"))
	if scripts > 1 {
		c.h.batches.Add(1)
	}
	c.many.Store(scripts > 1 || scripts > 0 && bytes.Contains(b, []byte("asking")))
	if scripts > 0 {
		c.h.mu.Lock()
		shut := c.h.shut
		c.h.mu.Unlock()
		if shut != nil {
			c.h.held.Add(1)
			<-shut
		}
	}
	return c.Conn.Write(b)
}

// Read passes errors, the OK of ASKING and the first keep strings. It closes the connection before
// the next string.
func (c *holdupConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.h.moved.Add(int64(bytes.Count(b[:n], []byte("-MOVED "))))
	c.h.asked.Add(int64(bytes.Count(b[:n], []byte("-ASK "))))
	if crossed := bytes.Count(b[:n], []byte("-CROSSSLOT ")); crossed > 0 {
		c.h.crossed.Add(int64(crossed))
		if c.h.onCrossed != nil {
			c.h.onCrossed()
		}
	}
	keep := c.h.keep.Load()
	if keep < 0 || !c.many.Load() {
		return n, err
	}
	at := 0
	for at < n {
		line := bytes.IndexByte(b[at:n], '\n') + 1
		if line == 0 {
			break
		}
		if b[at] == '$' {
			if keep--; keep < 0 {
				break
			}
			size, _ := strconv.Atoi(string(b[at+1 : at+line-2]))
			line += size + 2
		}
		at += line
	}
	if keep >= 0 {
		return n, err
	}
	c.h.lost.Add(1)
	c.Close()
	if at == 0 {
		return 0, io.EOF
	}
	return at, nil
}

// arriving is a context that calls arrived when a store begins to wait for it: then the demand is
// in the queue.
type arriving struct {
	context.Context
	once    sync.Once
	arrived func()
}

func (a *arriving) Done() <-chan struct{} {
	a.once.Do(a.arrived)
	return a.Context.Done()
}

// outcome is the result of a Take of key.
type outcome struct {
	key string
	res ratelimit.Result
	err error
}

// takeTogether takes a unit of each key at once. The first two are sent at once; all others are
// queued before those two are answered.
func takeTogether(t *testing.T, s ratelimit.Store, h *holdup, keys []string) []outcome {
	t.Helper()
	outcomes := make([]outcome, len(keys))
	open := h.close()
	var all, waiting sync.WaitGroup
	for i, key := range keys {
		ctx := &arriving{Context: t.Context(), arrived: waiting.Done}
		waiting.Add(1)
		all.Go(func() {
			res, err := s.Take(ctx, clients.Take(key))
			outcomes[i] = outcome{key, res, err}
		})
		if i > 1 {
			continue
		}
		within, cancel := context.WithTimeout(t.Context(), servers.FaultTimeout)
		err := servers.Poll(within, func() (bool, error) {
			return h.held.Load() == int64(i+1), nil
		})
		cancel()
		if err != nil {
			open()
			t.Fatalf("Take %d was not sent at once: %v", i, err)
		}
	}
	waiting.Wait()
	open()
	all.Wait()
	return outcomes
}

// ofServer returns n fresh keys in different slots of one server of a cluster of three.
func ofServer(t *testing.T, admin *redis.ClusterClient, server int, n int) []string {
	t.Helper()
	var keys []string
	slots := make(map[int64]bool)
	for len(keys) < n {
		key := servers.FreshKey(t)
		slot := admin.ClusterKeySlot(t.Context(), "{="+key+"}").Val()
		if int(slot)*servers.ClusterPrimaries/servers.ClusterSlots == server && !slots[slot] {
			slots[slot] = true
			keys = append(keys, key)
		}
	}
	return keys
}

// TestBatchLostAnswers loses the answers of a batch after the first, before the first, or after
// servers have redirected all or one of its commands. Each answered Take is recorded once. The
// others return ErrOutcomeUnknown and are recorded once too.
func TestBatchLostAnswers(t *testing.T) {
	const batch, ahead = 24, 2
	servers.OneImage(t, "redis:8", func(t *testing.T, image string) {
		cl := servers.StartCluster(t, image)
		admin := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cl.Addrs()})
		defer admin.Close()
		calm := clients.GoRedis(admin).NewStore(t, &serverstore.Options{Timeout: clients.Patient})
		for _, tc := range []struct {
			name string
			keep int64
			slot bool // one slot moves
			lead bool // the client sends to the wrong primary
		}{
			{name: "all answered", keep: -1},
			{name: "first answered", keep: 1},
			{name: "none answered", keep: 0},
			{name: "moved, all answered", keep: -1, lead: true},
			{name: "moved, first answered", keep: 1, lead: true},
			{name: "asked, all answered", keep: -1, slot: true},
			{name: "asked, none answered", keep: 0, slot: true},
		} {
			t.Run(tc.name, func(t *testing.T) {
				h := newHoldup()
				opts := redis.ClusterOptions{Addrs: cl.Addrs(), Dialer: h.dial}
				if tc.lead {
					opts.ClusterSlots = wrongSlots(t, admin)
				}
				client := redis.NewClusterClient(&opts)
				defer client.Close()
				s := clients.GoRedis(client).
					NewStore(t, &serverstore.Options{Timeout: clients.Patient})
				// now all servers have the scripts, and the client has connections to them
				for server := range servers.ClusterPrimaries {
					if _, err := s.Take(t.Context(),
						clients.Take(ofServer(t, admin, server, 1)[0])); err != nil {
						t.Fatal(err)
					}
				}
				keys := ofServer(t, admin, 0, ahead+batch)
				if tc.slot {
					servers.MigrateSlot(t, admin, "{="+keys[ahead]+"}")
				}
				h.batches.Store(0)
				h.keep.Store(tc.keep)
				outcomes := takeTogether(t, s, h, keys)
				h.keep.Store(-1)

				sent := int64(1)
				if tc.lead {
					sent = 2
				}
				if got := h.batches.Load(); got != sent {
					t.Errorf("%d batches were sent, want %d", got, sent)
				}
				if tc.lead && h.moved.Load() < batch || tc.slot && h.asked.Load() == 0 {
					t.Errorf("got %d MOVED and %d ASK, want redirects", h.moved.Load(),
						h.asked.Load())
				}
				answered := 0
				for i, o := range outcomes {
					switch {
					case o.err == nil && o.res.Allowed:
						if i >= ahead {
							answered++
						}
					case tc.keep < 0 || !errors.Is(o.err, ratelimit.ErrOutcomeUnknown):
						t.Errorf("Take %d: got %+v, %v; want an admission or, if answers get "+
							"lost, ErrOutcomeUnknown", i, o.res, o.err)
					}
					// the lost answer may have been the redirect, so the Take may be unrecorded
					redirectionLost := tc.slot && tc.keep == 0 && i == ahead
					if n := clients.Recorded(t, calm, o.key); n != 1 &&
						(n != 0 || !redirectionLost) {
						t.Errorf("Take %d, %v: recorded %d times, want once", i, o.err, n)
					}
				}
				want := batch
				if tc.keep >= 0 {
					want = int(tc.keep)
				}
				if answered != want {
					t.Errorf("%d Takes of a batch of %d were answered, want %d",
						answered, batch, want)
				}
				if lost := h.lost.Load() > 0; lost != (tc.keep >= 0) {
					t.Errorf("answers were lost: %t, want %t", lost, !lost)
				}
			})
		}
	})
}

// TestBatchUnknownScripts: a batch works on a server that has lost its scripts.
func TestBatchUnknownScripts(t *testing.T) {
	servers.EachTarget(t, func(t *testing.T, tgt *servers.Target) {
		if !tgt.Cluster {
			t.Skip("one server gets no batches")
		}
		h := newHoldup()
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: tgt.Addrs, Dialer: h.dial})
		defer client.Close()
		s := clients.GoRedis(client).NewStore(t,
			&serverstore.Options{Prefix: servers.UniquePrefix(), Timeout: clients.Patient})
		keys := ofServer(t, client, 1, 12)
		if _, err := s.Take(t.Context(), clients.Take(keys[0])); err != nil {
			t.Fatal(err)
		}
		if err := servers.DropScripts(t.Context(), client); err != nil {
			t.Fatal(err)
		}
		h.batches.Store(0)
		// two equal Takes use another script than the first ones, which are alone
		keys = append(keys, keys[2:]...)
		for i, o := range takeTogether(t, s, h, keys) {
			if o.err != nil || !o.res.Allowed {
				t.Errorf("Take %d: got %+v, %v; want an admission", i, o.res, o.err)
			}
			want := int64(2)
			if i == 1 {
				want = 1
			}
			if n := clients.Recorded(t, s, o.key); n != want {
				t.Errorf("Take %d: recorded %d times, want %d", i, n, want)
			}
		}
		if h.batches.Load() == 0 {
			t.Error("no batch was sent, want one")
		}
	})
}

// TestPausedServerDelaysNoOther: while one server of a cluster under load is frozen, demands on
// keys of the others are decided as before, and those on its own keys fail in time.
func TestPausedServerDelaysNoOther(t *testing.T) {
	t.Parallel()
	const timeout = 3 * time.Second // far more than other servers need, even on a busy machine
	servers.OneImage(t, "redis:8", func(t *testing.T, image string) {
		// on a busy machine the test can take longer than the default of 2s
		cl := servers.StartClusterOf(t, image, servers.ClusterPrimaries,
			"--cluster-node-timeout", "15000")
		admin := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cl.Addrs()})
		defer admin.Close()
		clients.Each(t, func(t *testing.T, lib clients.Library) {
			s := lib.Client(t, clients.Dialing{Addrs: cl.Addrs(), Cluster: true}).
				NewStore(t, &serverstore.Options{Timeout: timeout})
			keys := make([][]string, servers.ClusterPrimaries)
			for server := range keys {
				keys[server] = ofServer(t, admin, server, 40)
			}
			round := func(server int) (failed int64, slowest time.Duration) {
				var wg sync.WaitGroup
				var bad, longest atomic.Int64
				for _, key := range keys[server] {
					wg.Go(func() {
						for range 10 {
							start := time.Now()
							if _, err := s.Take(context.Background(),
								clients.Take(key)); err != nil {
								bad.Add(1)
								if server != 1 {
									t.Errorf("server %d: got %v, want a decision", server, err)
								}
							}
							took := int64(time.Since(start))
							for old := longest.Load(); took > old &&
								!longest.CompareAndSwap(old, took); old = longest.Load() {
							}
							if server == 1 && bad.Load() > 0 {
								return
							}
						}
					})
				}
				wg.Wait()
				return bad.Load(), time.Duration(longest.Load())
			}
			for server := range keys { // opens connections and loads scripts
				if failed, _ := round(server); failed > 0 {
					t.Fatal("a Take failed on an available server")
				}
			}
			cl.Nodes[1].Pause(t)
			defer cl.Nodes[1].Unpause(t)
			watched := servers.WatchStandstill()
			var late time.Duration // the slowest of the paused server
			var paused sync.WaitGroup
			paused.Go(func() {
				failed, slowest := round(1)
				if late = slowest; failed == 0 {
					t.Error("the paused server answered: this test proves nothing")
				}
			})
			var slowest time.Duration
			for _, server := range []int{0, 2} {
				_, d := round(server)
				slowest = max(slowest, d)
			}
			paused.Wait()
			if still := watched(); late > servers.LatestAnswer(timeout, still) {
				t.Errorf("a Take on the paused server returned after %v, want about %v; the "+
					"machine stood still for %v", late, timeout, still)
			}
			servers.Measured("%s, one server of a cluster paused, %s: slowest of 800 Takes of the "+
				"others %v", image, lib.Name, slowest.Round(time.Millisecond))
		})
	})
}
