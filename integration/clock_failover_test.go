package integration

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
)

// TestClockOfReplica loses a primary whose replica has a clock of its own, minutes behind or ahead, and makes that the primary. It is as if the
// one server's clock had stepped: behind, nobody is admitted sooner than without it, and refusals end one window later at most; ahead, one more
// of the limit is admitted and nobody is refused.
func TestClockOfReplica(t *testing.T) {
	t.Parallel()
	eachClocked(t, func(t *testing.T, image string) {
		limit := algorithm.SlidingLog(ratelimit.Limit{Max: 10, Window: 2 * stepSlack})
		for name, of := range map[string]struct {
			offset time.Duration
			then   func(*refusedTimed) error
		}{
			"behind": {-5 * time.Minute, func(r *refusedTimed) error { return r.comeAgain(t, limit.Limit().Window) }},
			"ahead":  {5 * time.Minute, func(r *refusedTimed) error { _, err := r.admitted(t); return err }},
		} {
			t.Run(name, func(t *testing.T) {
				primary, replica := startClocked(t, image), startClocked(t, image)
				replica.setClock(t, of.offset)
				replica.follow(t, primary)
				way := &detour{to: primary.addr}
				stores := timedStores(t, dialing{addrs: []string{primary.addr}, dial: way.dial, patient: true, multiplex: -1})
				eachRefused(t, stores, limit, func() {
					primary.awaitReplica(t)
					primary.kill(t)
					if err := newCalm(t, replica.addr).Do(t.Context(), "REPLICAOF", "NO", "ONE").Err(); err != nil {
						t.Fatal(err)
					}
					way.turn(replica.addr)
					for _, s := range stores {
						decided(t, s.store, ratelimit.Demand{Key: freshKey(t), Algorithm: limit, Op: ratelimit.Look, N: 1})
					}
				}, of.then)
			})
		}
	})
}

// follow makes s a replica of primary.
func (s *server) follow(t testing.TB, primary *server) {
	t.Helper()
	ip, err := primary.container.ContainerIP(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := newCalm(t, s.addr)
	if err := c.Do(t.Context(), "REPLICAOF", ip, "6379").Err(); err != nil {
		t.Fatal(err)
	}
	within(t, func() bool { ok, err := inSync(t.Context(), c); return ok && err == nil }, "the replica does not follow")
}

// awaitReplica returns when one replica has all that s has written.
func (s *server) awaitReplica(t testing.TB) {
	t.Helper()
	c := newCalm(t, s.addr).Conn()
	defer c.Close()
	if err := c.Set(t.Context(), freshKey(t), "", 0).Err(); err != nil { // WAIT waits for what the same connection has written
		t.Fatal(err)
	}
	if n, err := c.Wait(t.Context(), 1, 2*time.Second).Result(); err != nil || n != 1 { // less than the client waits for an answer
		t.Fatalf("%d replicas have all, %v", n, err)
	}
}

// A detour dials the server that it points to, whichever is asked for, as a name or a virtual address does.
type detour struct {
	mu    sync.Mutex
	to    string
	conns []net.Conn
}

func (d *detour) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	d.mu.Lock()
	to := d.to
	d.mu.Unlock()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, network, to)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conns = append(d.conns, conn)
	return conn, nil
}

// turn points d to another server.
func (d *detour) turn(to string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.to = to
	for _, conn := range d.conns {
		conn.Close()
	}
	d.conns = nil
}
