package clocks

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
)

// TestClockOfReplica: failing over to a replica whose clock is minutes behind or ahead is like a
// step of the clock. Behind, nothing is admitted early, and refusals last at most one window
// longer; ahead, the limit can be admitted once more, and the server refuses nothing that has left
// the window.
func TestClockOfReplica(t *testing.T) {
	t.Parallel()
	servers.EachClocked(t, func(t *testing.T, image string) {
		limit := algorithm.SlidingLog(ratelimit.Limit{Max: 10, Window: 2 * stepSlack})
		for name, of := range map[string]struct {
			offset time.Duration
			then   func(*refusedTimed) error
		}{
			"behind": {-5 * time.Minute,
				func(r *refusedTimed) error { return r.comeAgain(t, limit.Limit().Window) }},
			"ahead": {5 * time.Minute,
				func(r *refusedTimed) error { _, err := r.admitted(t); return err }},
		} {
			t.Run(name, func(t *testing.T) {
				primary, replica := servers.StartClocked(t, image), servers.StartClocked(t, image)
				replica.SetClock(t, of.offset)
				replica.Follow(t, primary)
				way := &detour{to: primary.Addr}
				stores := timedStores(t, clients.Dialing{Addrs: []string{primary.Addr},
					Dial: way.dial, Patient: true, Multiplex: -1})
				eachRefused(t, stores, limit, func() {
					primary.AwaitReplica(t)
					primary.Kill(t)
					if err := servers.Connect(t, replica.Addr).
						Do(t.Context(), "REPLICAOF", "NO", "ONE").Err(); err != nil {
						t.Fatal(err)
					}
					way.turn(replica.Addr)
					for _, s := range stores {
						clients.Decided(t, s.store, driver.Demand{Key: servers.FreshKey(t),
							Algorithm: limit, Op: driver.OpPeek, N: 1})
					}
				}, of.then)
			})
		}
	})
}

// A detour dials its current server, whatever the address, as a name or a virtual address does.
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

// turn points d to another server and closes the open connections.
func (d *detour) turn(to string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.to = to
	for _, conn := range d.conns {
		conn.Close()
	}
	d.conns = nil
}
