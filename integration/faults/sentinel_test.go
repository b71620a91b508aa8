package faults

import (
	"testing"

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
	})
}
