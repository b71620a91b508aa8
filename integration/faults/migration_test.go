package faults

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
)

var moveLog = algorithm.SlidingLog(ratelimit.PerDay("day", moveLimit))

const (
	moveLimit = 50
	movePace  = 20 * time.Millisecond // between rounds of demands, and between keys that move
	// moveTimeout is how long a demand may wait: much longer than the two keys of a pair are on
	// different servers.
	moveTimeout = 5 * time.Second
)

// A redirects dials connections and counts the redirections that servers answer on them.
type redirects struct {
	moved, ask, tryAgain atomic.Int64
}

func (r *redirects) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	return redirectsConn{conn, r}, err
}

type redirectsConn struct {
	net.Conn
	r *redirects
}

func (c redirectsConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.r.moved.Add(int64(bytes.Count(b[:n], []byte("-MOVED "))))
	c.r.ask.Add(int64(bytes.Count(b[:n], []byte("-ASK "))))
	c.r.tryAgain.Add(int64(bytes.Count(b[:n], []byte("-TRYAGAIN "))))
	return n, err
}

// A mover is one store with keys of the slot that moves. Its demands are on one key, or on two keys
// that are decided together.
type mover struct {
	name  string
	store ratelimit.Store
	r     *redirects
	alone bool
	// there: keys with a state before the slot moves. absent: keys that are used only while it
	// moves, some pairs of which have a state for the first key.
	there, absent [][]string
	admitted      sync.Map // *atomic.Int64 by the first key
	answers       atomic.Int64
	errors        atomic.Int64
	longest       atomic.Int64
}

func (m *mover) all() [][]string { return slices.Concat(m.there, m.absent) }

// take takes a unit of each of keys.
func (m *mover) take(t testing.TB, keys []string) {
	ds, out := make([]driver.Demand, len(keys)), make([]ratelimit.Result, len(keys))
	for i, key := range keys {
		ds[i] = clients.Take(key)
		ds[i].Algorithm = moveLog
	}
	began := time.Now()
	var err error
	if len(ds) > 1 {
		err = m.store.TakeAll(context.Background(), ds, out)
	} else {
		out[0], err = m.store.Take(context.Background(), ds[0])
	}
	for took := int64(time.Since(began)); ; {
		if longest := m.longest.Load(); took <= longest || m.longest.CompareAndSwap(longest, took) {
			break
		}
	}
	if err != nil {
		m.errors.Add(1)
		t.Errorf("%s: %v", m.name, err)
		return
	}
	m.answers.Add(1)
	if !slices.ContainsFunc(out, func(res ratelimit.Result) bool { return !res.Allowed }) {
		m.count(keys).Add(1)
	}
}

// count returns how many units of keys were admitted.
func (m *mover) count(keys []string) *atomic.Int64 {
	n, _ := m.admitted.LoadOrStore(keys[0], new(atomic.Int64))
	return n.(*atomic.Int64)
}

// report adds what the callers of m got while the slot moved to the table.
func (m *mover) report(t testing.TB, image string) {
	t.Helper()
	row := faultRow{fault: slotMoves, client: m.name, image: image,
		slowest: time.Duration(m.longest.Load())}
	row.got = got{answers: int(m.answers.Load()), unavailable: int(m.errors.Load())}
	for _, keys := range m.there {
		row.admitted += int(m.count(keys).Load())
		row.recorded += used(t, m.store, keys[0])
	}
	faultTable.add(row)
}

// TestSlotMigration moves a slot key by key while callers take units of keys in it: of keys that
// move, of keys that have no state yet, and of pairs of which one key has moved. All calls are
// decided, and each key admits its limit.
func TestSlotMigration(t *testing.T) {
	servers.OneImage(t, "redis:8", func(t *testing.T, image string) {
		cl := servers.StartCluster(t, image)
		admin := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cl.Addrs()})
		defer admin.Close()
		prefix := servers.UniquePrefix()
		tag := func(string) string { return "moves" }
		stored := func(key string) string {
			return prefix + "{=moves}=" + key + ":day:" + moveLog.Name()
		}

		var movers []*mover
		var order []string // in which keys move
		for _, lib := range clients.Libraries {
			r := new(redirects)
			client := lib.Client(t, clients.Dialing{Addrs: cl.Addrs(), Cluster: true, Dial: r.dial})
			for _, alone := range []bool{false, true} {
				m := &mover{name: lib.Name, r: r, alone: alone, store: client.NewStore(t,
					&serverstore.Options{Prefix: prefix, Tag: tag, Timeout: moveTimeout,
						NoBatching: alone})}
				if alone {
					m.name += " alone"
				}
				key := func(what string) string {
					return fmt.Sprintf("%s-%v-%s-%d", lib.Name, alone, what, servers.FreshNumber())
				}
				for range 4 {
					m.there = append(m.there, []string{key("one")})
				}
				m.there = append(m.there, []string{key("two"), key("two")})
				m.absent = [][]string{{key("new")}, {key("new"), key("new")},
					{key("half"), key("half")}}
				half := m.absent[2][:1]
				for _, keys := range append(m.there, half) {
					m.take(t, keys)
					order = append(order, keys...)
				}
				m.admitted.Delete(half[0])
				movers = append(movers, m)
			}
		}

		var begun atomic.Bool // the slot moves
		stop := make(chan struct{})
		var wg sync.WaitGroup
		halt := sync.OnceFunc(func() { close(stop); wg.Wait() })
		defer halt()
		for _, m := range movers {
			wg.Go(func() {
				tick := time.NewTicker(movePace)
				defer tick.Stop()
				for {
					select {
					case <-stop:
						return
					case <-tick.C:
					}
					asked := m.there
					if begun.Load() {
						asked = m.all()
					}
					var round sync.WaitGroup // at once, so that they are batched
					for _, keys := range asked {
						round.Go(func() { m.take(t, keys) })
					}
					round.Wait()
				}
			})
		}

		moveSlot(t, admin, stored(order[0]), func(i int, move func(key string)) bool {
			begun.Store(true)
			if i >= len(order) {
				ctx, cancel := context.WithTimeout(t.Context(), moveTimeout/2)
				defer cancel()
				for _, m := range movers {
					for _, keys := range m.absent {
						if servers.Poll(ctx,
							func() (bool, error) { return m.count(keys).Load() > 0, nil }) != nil {
							t.Errorf("%s: %q, which had no state, is decided only when the slot "+
								"has moved", m.name, keys)
						}
					}
				}
				return false
			}
			move(stored(order[i]))
			return true
		})
		// for clients that have not noticed yet which server has the slot
		rounds := time.NewTimer(5 * movePace)
		<-rounds.C
		halt()

		var moved int64
		for _, m := range movers {
			m.report(t, image)
			for _, keys := range m.all() {
				for range moveLimit {
					m.take(t, keys)
				}
				// Of half a pair one unit was taken alone.
				want := int64(moveLimit)
				if slices.Equal(keys, m.absent[2]) {
					want--
				}
				if n := m.count(keys).Load(); n != want {
					t.Errorf("%s: %d admitted of %q, want %d", m.name, n, keys, want)
				}
				for _, key := range keys {
					if left := admin.PTTL(t.Context(), stored(key)).Val(); left < time.Hour {
						t.Errorf("%s: the state of %q expires after %v", m.name, key, left)
					}
				}
			}
			servers.Measured("%s slot moved, %s: longest answer %v, %d errors", image, m.name,
				time.Duration(m.longest.Load()).Round(time.Millisecond), m.errors.Load())
			if m.alone { // the counts are of the client, so both its movers have the same
				continue
			}
			servers.Measured("%s slot moved, %s: %d MOVED, %d ASK, %d TRYAGAIN",
				image, m.name, m.r.moved.Load(), m.r.ask.Load(), m.r.tryAgain.Load())
			moved += m.r.moved.Load()
			if m.r.ask.Load() == 0 || m.r.tryAgain.Load() == 0 {
				t.Errorf("%s: %d ASK, %d TRYAGAIN: this test proves nothing",
					m.name, m.r.ask.Load(), m.r.tryAgain.Load())
			}
		}
		if moved == 0 { // one client may have noticed in time, but not all
			t.Error("no MOVED: this test proves nothing")
		}
	})
}

// moveSlot moves the slot of key to another primary. It calls next, which moves keys of the slot
// one after the other, until next returns false.
func moveSlot(
	t *testing.T, client *redis.ClusterClient, key string,
	next func(i int, move func(key string)) bool,
) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	slot := client.ClusterKeySlot(ctx, key).Val()
	from, to, others := servers.MigrateSlot(t, client, key)
	host, port, err := net.SplitHostPort(to.Options().Addr)
	if err != nil {
		t.Fatal(err)
	}
	move := func(key string) {
		if err := from.Migrate(ctx, host, port, key, 0, servers.FaultTimeout).Err(); err != nil {
			t.Error(err)
		}
	}
	tick := time.NewTicker(movePace)
	defer tick.Stop()
	for i := 0; next(i, move); i++ {
		<-tick.C
	}
	left, err := from.ClusterGetKeysInSlot(ctx, int(slot), 1000).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range left {
		move(key)
	}
	id := to.Do(ctx, "CLUSTER", "MYID").Val()
	for _, node := range append([]*redis.Client{to, from}, others...) {
		if err := node.Do(ctx, "CLUSTER", "SETSLOT", slot, "NODE", id).Err(); err != nil {
			t.Fatal(err)
		}
	}
}
