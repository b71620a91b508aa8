package faults

import (
	"bytes"
	"context"
	"net"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
)

// TestSentinelFailover loses three primaries, each in a different way. Sentinels need some time to
// turn a primary that has recovered into a replica, so the test waits for all of them together.
func TestSentinelFailover(t *testing.T) {
	t.Parallel() // it mostly waits for elections
	servers.OneImage(t, "valkey/valkey:9", func(t *testing.T, image string) {
		w := servers.StartSentinels(t, image, len(faults))
		strikeOne := func(i int) *failover {
			d := clients.Dialing{Addrs: w.Addrs(), MasterSet: servers.MasterSet(i), Prompt: true}
			fo := strike(t, faults[i], w.Pairs[i], d, func(_ testing.TB, name string) failoverKeys {
				return failoverKeys{own: name, calm: name + "-calm", shared: "shared",
					group: [2]string{name + "/1", name + "/2"}}
			})
			fo.heal()
			return fo
		}
		var struck []*failover
		for i := range faults {
			struck = append(struck, strikeOne(i))
		}
		for i, fo := range struck {
			inTime(t, func(late *lateness) {
				if fo == nil {
					fo = strikeOne(i)
				}
				fo.finish(t, late)
				fo = nil
				p := w.Pairs[i]
				p.Primary, p.Replica = p.Replica, p.Primary
			})
		}
		loseEvent(t, w)
	})
}

// loseEvent freezes a primary while clients do not get the Sentinels' event of the failover. A
// client that is just connecting may miss it, too. All find the new primary nevertheless.
func loseEvent(t *testing.T, w *servers.Sentinels) {
	t.Helper()
	p := w.Pairs[0]
	d := clients.Dialing{Addrs: w.Addrs(), MasterSet: servers.MasterSet(0), Prompt: true,
		Dial: dialUnheard}
	opts := serverstore.Options{Prefix: servers.UniquePrefix()}
	stores := make(map[string]ratelimit.Store)
	for _, lib := range clients.Libraries {
		stores[lib.Name] = lib.Client(t, d).NewStore(t, &opts)
		if lib.Caching != nil {
			stores[lib.Name+"-cached"] = lib.Caching(d).Store(t, &opts)
		}
	}
	decide := func() {
		for name, s := range stores {
			servers.Within(t, func() bool {
				_, err := s.Take(t.Context(), failoverTake("unheard"))
				return err == nil
			}, name+" decides nothing")
		}
	}
	decide()
	p.Primary.Pause(t)
	t.Cleanup(func() { p.Primary.Unpause(t) })
	ctx, cancel := context.WithTimeout(t.Context(), electionTimeout)
	defer cancel()
	if err := servers.Poll(ctx, func() (bool, error) { return p.Announced(ctx), nil }); err != nil {
		t.Fatalf("waiting for the election: %v", err)
	}
	elected := time.Now()
	decide()
	servers.Measured("%s, no event of a failover: decided within %v of the election",
		p, time.Since(elected).Round(time.Millisecond))
}

// dialUnheard opens a connection on which a Sentinel's event of a failover has another name.
func dialUnheard(ctx context.Context, network, addr string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: clients.PromptTimeout}
	conn, err := dialer.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return unheard{conn}, nil
}

type unheard struct{ net.Conn }

func (c unheard) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	event, other := "message\r\n$14\r\n+switch-master", "message\r\n$14\r\n+switched-else"
	copy(b, bytes.ReplaceAll(b[:n], []byte(event), []byte(other)))
	return n, err
}
