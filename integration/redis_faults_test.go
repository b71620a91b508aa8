package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
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
	"github.com/truewindow/ratelimit/algorithm"
	redisstore "github.com/truewindow/ratelimit/backend/redis"
)

// perDay is a limit whose window no test outlasts.
var perDay = algorithm.SlidingLog(ratelimit.PerDay(1000))

func take(key string) ratelimit.Demand {
	return ratelimit.Demand{Key: key, Algorithm: perDay, N: 1}
}

// calmStore returns a store on tgt that nothing disturbs, and that is patient where opts is nil.
func calmStore(t testing.TB, tgt *target, opts *redisstore.Options) ratelimit.Store {
	t.Helper()
	if opts == nil {
		opts = &redisstore.Options{Timeout: patient}
	}
	s, err := redisstore.New(tgt.client(t), ratelimit.FailClosed, opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// recorded returns how many units of key are recorded, by a store that nothing disturbs.
func recorded(t testing.TB, s ratelimit.Store, key string) int64 {
	t.Helper()
	d := take(key)
	d.Op = ratelimit.Look
	res, err := s.Take(context.Background(), d)
	if err != nil {
		t.Fatal(err)
	}
	return res.Limit - res.Remaining
}

// freshKey returns a key that no other test has.
func freshKey(t testing.TB) string {
	return fmt.Sprintf("%s:%d", t.Name(), freshKeys.Add(1))
}

var freshKeys atomic.Int64

// A cutter dials connections on which the answers of scripts get lost after the server has run them.
type cutter struct {
	on           atomic.Bool
	cut          atomic.Int64 // answers lost
	moved, asked atomic.Int64 // redirects seen
	onMoved      func(by string)
}

func (c *cutter) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &cutConn{Conn: conn, cutter: c, addr: addr}, nil
}

type cutConn struct {
	net.Conn
	cutter *cutter
	addr   string
	script atomic.Bool // a script was written that has no answer yet
}

func (c *cutConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("eval")) { // what follows it, such as a ping, changes nothing
		c.script.Store(true)
	}
	return c.Conn.Write(b)
}

// Read loses the first array, integer or string after a script. Errors and the OK of ASKING get through.
func (c *cutConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if bytes.Contains(b[:n], []byte("-MOVED ")) {
		c.cutter.moved.Add(1)
		if c.cutter.onMoved != nil {
			c.cutter.onMoved(c.addr)
		}
	}
	if bytes.Contains(b[:n], []byte("-ASK ")) {
		c.cutter.asked.Add(1)
	}
	failed := n > 0 && b[0] == '-'
	if !c.script.Load() || !failed && !bytes.ContainsAny(b[:n], "*:$") {
		return n, err
	}
	if c.cutter.on.Load() && !failed {
		c.cutter.cut.Add(1)
		c.Close()
		return 0, io.EOF
	}
	c.script.Store(false)
	return n, err
}

// TestRedisLostAnswer cuts connections when the script has run and its answer is on its way. The libraries would run it again, as they do
// those that may be.
func TestRedisLostAnswer(t *testing.T) {
	t.Parallel()
	eachTarget(t, func(t *testing.T, tgt *target) {
		calm := calmStore(t, tgt, nil)
		lose := func(t *testing.T, lib library, style style, alone bool) {
			var c cutter
			d := tgt.dialing()
			d.dial, d.style = c.dial, style
			client := lib.client(t, d)
			faulty := client.newStore(t, &redisstore.Options{Timeout: patient, Alone: alone})
			if _, err := faulty.Take(t.Context(), take(freshKey(t))); err != nil { // the script is known to the server
				t.Fatal(err)
			}
			c.on.Store(true)
			for range 10 {
				before := c.cut.Load()
				key := freshKey(t)
				_, err := faulty.Take(t.Context(), take(key))
				if !errors.Is(err, ratelimit.ErrOutcomeUnknown) {
					t.Fatalf("%v, want ErrOutcomeUnknown", err)
				}
				if n := c.cut.Load() - before; n != 1 {
					t.Fatalf("%d answers were cut", n)
				}
				if n := recorded(t, calm, key); n != 1 {
					t.Fatalf("%d records for one Take", n)
				}
			}

			// The fault is one: what the client may send again falls for it.
			counter := freshKey(t)
			within, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			_ = client.retry(within, "return redis.call('INCR', KEYS[1])", counter)
			if n, err := tgt.client(t).Get(t.Context(), counter).Int(); err != nil || n < 2 {
				t.Errorf("a script that may be sent again ran %d times (%v): this test proves nothing", n, err)
			}

			c.on.Store(false)
			if _, err := faulty.Take(t.Context(), take(freshKey(t))); err != nil {
				t.Errorf("after the fault: %v", err)
			}
		}
		eachLibrary(t, func(t *testing.T, lib library) {
			if !lib.piped {
				t.Run("together", func(t *testing.T) { lose(t, lib, style{}, false) })
				t.Run("alone", func(t *testing.T) { lose(t, lib, style{}, true) })
				return
			}
			for _, style := range styles {
				t.Run(style.name+"/together", func(t *testing.T) { lose(t, lib, style, false) })
				if full || style == styles[0] {
					t.Run(style.name+"/alone", func(t *testing.T) { lose(t, lib, style, true) })
				}
			}
		})
	})
}

// TestRedisRedirects holds that MOVED and ASK are followed, and that a demand whose answer is lost after a redirect is
// recorded once.
func TestRedisRedirects(t *testing.T) {
	t.Parallel()
	for _, image := range images {
		t.Run(strings.ReplaceAll(image, "/", "-"), func(t *testing.T) {
			cl := startCluster(t, image)
			right := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cl.addrs()})
			defer right.Close()
			calmStore := func(opts *redisstore.Options) ratelimit.Store { return goRedisClient(right).newStore(t, opts) }
			calm := &redisstore.Options{Timeout: patient}
			migrating := &redisstore.Options{Timeout: patient, Tag: func(string) string { return "migrating" }}
			old, other := freshKey(t), freshKey(t)
			if _, err := calmStore(migrating).Take(t.Context(), take(old)); err != nil {
				t.Fatal(err)
			}

			eachLibrary(t, func(t *testing.T, lib library) {
				var c cutter
				open := func() ratelimit.Store {
					return lib.misled(t, cl, &c).newStore(t, &redisstore.Options{Timeout: patient})
				}
				for range 10 {
					takeAndLose(t, open, calmStore(calm), &c, freshKey(t))
				}
				if n := c.moved.Load(); n < 20 {
					t.Errorf("%d MOVED for 20 Takes", n)
				}
			})

			migrate(t, right, "{=migrating}")
			eachLibrary(t, func(t *testing.T, lib library) {
				var c cutter
				open := func() ratelimit.Store {
					d := dialing{addrs: cl.addrs(), cluster: true, dial: c.dial}
					return lib.client(t, d).newStore(t, migrating)
				}
				takeAndLose(t, open, calmStore(migrating), &c, freshKey(t))
				if n := c.asked.Load(); n < 2 {
					t.Errorf("%d ASK for 2 Takes", n)
				}

				// old stays where the slot is, and other is where it goes.
				hurried := *migrating
				hurried.Timeout = 300 * time.Millisecond
				s := lib.client(t, dialing{addrs: cl.addrs(), cluster: true}).newStore(t, &hurried)
				err := s.TakeAll(t.Context(), []ratelimit.Demand{take(old), take(other)}, make([]ratelimit.Result, 2))
				wantUnavailable(t, err, "TRYAGAIN")
				if a, b := recorded(t, calmStore(migrating), old), recorded(t, calmStore(migrating), other); a != 1 || b != 0 {
					t.Errorf("TRYAGAIN: %d and %d records, want 1 and 0", a, b)
				}
			})
		})
	}
}

// misled returns a client of cl that takes each primary for the next until it is told better, and loses what c loses.
func (lib library) misled(t *testing.T, cl *cluster, c *cutter) anyClient {
	t.Helper()
	addrs := cl.addrs()
	if !lib.piped {
		right := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
		defer right.Close()
		wrong := redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: wrongSlots(t, right), Dialer: c.dial})
		t.Cleanup(func() { wrong.Close() })
		return goRedisClient(wrong)
	}
	var told sync.Map // by which primaries
	c.onMoved = func(by string) { told.Store(by, true) }
	return lib.client(t, dialing{addrs: addrs, cluster: true, dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		next := addrs[(slices.Index(addrs, addr)+1)%len(addrs)]
		if _, ok := told.Load(next); !ok {
			addr = next
		}
		return c.dial(ctx, network, addr)
	}})
}

// wrongSlots returns the slots of a cluster, each at the primary next to its own.
func wrongSlots(t *testing.T, client *redis.ClusterClient) func(context.Context) ([]redis.ClusterSlot, error) {
	t.Helper()
	slots, err := client.ClusterSlots(t.Context()).Result() //nolint:staticcheck // the type that ClusterOptions.ClusterSlots wants
	if err != nil {
		t.Fatal(err)
	}
	wrong := slices.Clone(slots)
	for i := range slots {
		wrong[i].Nodes = slots[(i+1)%len(slots)].Nodes
	}
	return func(context.Context) ([]redis.ClusterSlot, error) { return wrong, nil }
}

// takeAndLose takes twice by way of redirects, each time on a new store, and loses the second answer.
func takeAndLose(t *testing.T, open func() ratelimit.Store, calm ratelimit.Store, c *cutter, key string) {
	t.Helper()
	if res, err := open().Take(t.Context(), take(key)); err != nil || !res.Allowed {
		t.Fatalf("%+v, %v", res, err)
	}
	faulty := open()
	before := c.cut.Load()
	c.on.Store(true)
	_, err := faulty.Take(t.Context(), take(key))
	c.on.Store(false)
	if !errors.Is(err, ratelimit.ErrOutcomeUnknown) {
		t.Fatalf("answer lost: %v, want ErrOutcomeUnknown", err)
	}
	if n := c.cut.Load() - before; n != 1 {
		t.Fatalf("%d answers were cut", n)
	}
	if n := recorded(t, calm, key); n != 2 {
		t.Fatalf("%d records for two Takes", n)
	}
}

// wantUnavailable holds that err says that nothing was recorded, and holds the server's answer.
func wantUnavailable(t *testing.T, err error, answer string) {
	t.Helper()
	if !errors.Is(err, ratelimit.ErrUnavailable) || errors.Is(err, ratelimit.ErrOutcomeUnknown) {
		t.Errorf("%v, want ErrUnavailable", err)
	}
	if !strings.Contains(fmt.Sprint(err), answer) {
		t.Errorf("%v, want the server's %s", err, answer)
	}
}

// migrate begins to move key's slot from one primary to another and leaves it so.
func migrate(t *testing.T, client *redis.ClusterClient, key string) (from, to *redis.Client, others []*redis.Client) {
	t.Helper()
	ctx := t.Context()
	from, err := client.MasterForKey(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	if err := client.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case node == from:
		case to == nil:
			to = node
		default:
			others = append(others, node)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	slot := from.ClusterKeySlot(ctx, key).Val()
	fromID, toID := from.Do(ctx, "CLUSTER", "MYID").Val(), to.Do(ctx, "CLUSTER", "MYID").Val()
	if err := to.Do(ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", fromID).Err(); err != nil {
		t.Fatal(err)
	}
	if err := from.Do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", toID).Err(); err != nil {
		t.Fatal(err)
	}
	return from, to, others
}

// TestRedisNothingSentLate holds that a demand of which the caller was told that it was not sent is not sent later either, even by a client
// that does not look at the context.
func TestRedisNothingSentLate(t *testing.T) {
	eachTarget(t, func(t *testing.T, tgt *target) {
		client := tgt.client(t)
		s, calm := goRedisClient(client).newStore(t, nil), calmStore(t, tgt, nil)
		ask(t, goRedisClient(client).newStore(t, &redisstore.Options{Timeout: patient}), take(freshKey(t))) // connects
		l := late{until: make(chan struct{}), done: make(chan error, 8)}
		client.AddHook(&l)
		key := freshKey(t)
		_, err := s.Take(t.Context(), take(key))
		if !errors.Is(err, ratelimit.ErrUnavailable) || errors.Is(err, ratelimit.ErrOutcomeUnknown) {
			t.Errorf("%v, want ErrUnavailable", err)
		}
		close(l.until)
		if err := <-l.done; !redis.HasErrorPrefix(err, "NOSCRIPT") {
			t.Errorf("the late command was answered %v; it should have named no script", err)
		}
		if n := recorded(t, calm, key); n != 0 {
			t.Errorf("%d records", n)
		}
	})
}

// late holds commands back and then sends them whatever the context says.
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

// TestRedisSlowDial holds that the making of a connection outlives the caller for whom it was begun, and that nothing is sent on it for
// those who have left.
func TestRedisSlowDial(t *testing.T) {
	server := startServer(t, images[0])
	for _, lib := range libraries {
		if !lib.piped { // TestRedisNothingSentLate is for the others
			continue
		}
		t.Run(lib.name+"/together", func(t *testing.T) { dialSlowly(t, server, lib, false) })
		t.Run(lib.name+"/alone", func(t *testing.T) { dialSlowly(t, server, lib, true) })
	}
}

func dialSlowly(t *testing.T, server *server, lib library, alone bool) {
	var slow atomic.Bool
	var begun, hurried atomic.Int64
	release := make(chan struct{})
	d := dialing{addrs: []string{server.addr}, dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
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
	s, calm := lib.client(t, d).newStore(t, &redisstore.Options{Alone: alone}), newCalm(t, server.addr)
	slow.Store(true)
	if err := calm.Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal").Err(); err != nil {
		t.Fatal(err)
	}
	key := freshKey(t)
	ctx, cancel := context.WithTimeout(t.Context(), faultTimeout)
	defer cancel()
	if err := poll(ctx, func() (bool, error) { // some may find the connection that was killed
		if _, err := s.Take(t.Context(), take(key)); err == nil {
			return false, errors.New("answered without a connection")
		}
		return begun.Load() > 0, nil
	}); err != nil {
		t.Fatal(err)
	}
	for range 3 { // the first call has ended by then
		s.Take(t.Context(), take(freshKey(t)))
	}
	close(release)
	if err := poll(ctx, func() (bool, error) {
		_, err := s.Take(t.Context(), take(freshKey(t)))
		return err == nil, nil
	}); err != nil {
		t.Fatal(err)
	}
	if n := hurried.Load(); n != 0 {
		t.Errorf("%d connections were given up with those for whom they were begun", n)
	}
	if n := recorded(t, goRedisClient(calm).newStore(t, &redisstore.Options{Timeout: patient}), key); n != 0 {
		t.Errorf("%d records", n)
	}
}

func newCalm(t testing.TB, addr string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { c.Close() })
	return c
}

// TestRedisFrozen freezes a server under load. Every call is answered by its deadline, no decision is wrong, no goroutine stays, and
// the store works again by itself.
func TestRedisFrozen(t *testing.T) {
	for _, image := range images {
		t.Run(strings.ReplaceAll(image, "/", "-"), func(t *testing.T) {
			server := startServer(t, image)
			eachLibrary(t, func(t *testing.T, lib library) { freeze(t, server, lib) })
		})
	}
}

func freeze(t *testing.T, server *server, lib library) {
	client := lib.client(t, dialing{addrs: []string{server.addr}})
	s, calm := client.newStore(t, nil), client.newStore(t, &redisstore.Options{Timeout: patient})
	key := freshKey(t)
	if _, err := calm.Take(t.Context(), take(key)); err != nil {
		t.Fatal(err)
	}
	const own = 8 // goroutines that a client may yet begin for its connections
	goroutines := runtime.NumGoroutine()

	var allowed, unknown atomic.Int64
	allowed.Add(1)
	slowest := make([]time.Duration, 32)
	server.pause(t)
	var wg sync.WaitGroup
	for i := range slowest {
		wg.Go(func() {
			for range 3 {
				start := time.Now()
				res, err := s.Take(context.Background(), take(key))
				slowest[i] = max(slowest[i], time.Since(start))
				switch {
				case err == nil && res.Allowed:
					allowed.Add(1)
				case errors.Is(err, ratelimit.ErrOutcomeUnknown):
					unknown.Add(1)
				case !errors.Is(err, ratelimit.ErrUnavailable):
					t.Errorf("%v, want ErrUnavailable", err)
				}
			}
		})
	}
	wg.Wait()
	// The aim is 110ms; the rest is room for a machine that is busy with other tests.
	d := slices.Max(slowest)
	ran.measured("%s frozen, %s: slowest of 96 calls with a deadline of 100ms answered after %v", server.image, lib.name, d.Round(100*time.Microsecond))
	if d > 200*time.Millisecond {
		t.Errorf("a call was answered after %v", d)
	}
	if unknown.Load() == 0 || allowed.Load() != 1 {
		t.Errorf("%d outcomes unknown and %d allowed on a frozen server", unknown.Load(), allowed.Load()-1)
	}

	server.unpause(t)
	ctx, cancel := context.WithTimeout(t.Context(), faultTimeout)
	defer cancel()
	if err := poll(ctx, func() (bool, error) {
		res, err := s.Take(ctx, take(key))
		if err == nil && res.Allowed {
			allowed.Add(1)
		} else if errors.Is(err, ratelimit.ErrOutcomeUnknown) {
			unknown.Add(1)
		}
		return err == nil, nil
	}); err != nil {
		t.Fatalf("the store does not recover: %v", err)
	}
	if err := poll(ctx, func() (bool, error) { return runtime.NumGoroutine() <= goroutines+own, nil }); err != nil {
		t.Errorf("%d goroutines, were %d", runtime.NumGoroutine(), goroutines)
	}
	if n := recorded(t, calm, key); n < allowed.Load() || n > allowed.Load()+unknown.Load() {
		t.Errorf("%d records for %d admitted and %d unknown", n, allowed.Load(), unknown.Load())
	}
}
