//go:build !race

package clientip_test

import (
	"testing"

	"github.com/truewindow/ratelimit/clientip"
)

func TestGuardAllocations(t *testing.T) {
	trusting := clientip.XForwardedFor(prefixes("10.0.0.0/8", "fd00::/8")...)
	forwarded := clientip.Forwarded(prefixes("10.0.0.0/8", "fd00::/8")...)
	for _, peer := range []string{"192.0.2.1:1", "[2001:db8::1]:1", "10.0.0.1:1"} {
		r := request(peer, "X-Forwarded-For", spoof+", 198.51.100.7, 10.0.0.2")
		r.Header.Set("Forwarded", `for="198.51.100.7:80";proto=https, for=10.0.0.2`)
		for name, source := range map[string]clientip.Source{
			"RemoteAddr": {}, "XForwardedFor": trusting, "Forwarded": forwarded,
		} {
			most := 1.0
			if name == "RemoteAddr" && peer[0] != '[' {
				most = 0 // an IPv4 peer
			}
			if n := testing.AllocsPerRun(100, func() { _, _ = source.Key(r) }); n > most {
				t.Errorf("%s of %s: %v allocations, want %v", name, peer, n, most)
			}
		}
	}
}
