package envoy

import (
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/truewindow/ratelimit/integration/servers"
)

// TestDurationUntilReset shows a difference: theirs is the time until the window turns. Ours is the
// time until all units are free, or until a refused request is admitted, in a window that rolls.
func TestDurationUntilReset(t *testing.T) {
	setEnvironment(t, servers.Start(t, servers.Newest()).Addr, map[string]string{"api.yaml": `
domain: api
descriptors:
  - {key: few, rate_limit: {unit: day, requests_per_unit: 2}}
`})
	theirs, ours := startTheirs(t), startOurs(t)
	const day = 24 * time.Hour
	req := call("api", hits(of("few", "a"), 2))
	began := time.Now()
	for _, want := range []rls.RateLimitResponse_Code{ok, over} {
		before := time.Now()
		statuses := []*rls.RateLimitResponse_DescriptorStatus{
			theirs.ask(t, req).GetStatuses()[0], ours.ask(t, req).GetStatuses()[0]}
		after := time.Now()
		turns := before.UTC().Truncate(day).Add(day)
		if after.After(turns) {
			t.Skip("a day has begun meanwhile")
		}
		for i, bounds := range [][2]time.Duration{ // in whole seconds
			{turns.Sub(after) - time.Second, turns.Sub(before) + time.Second},
			{day - after.Sub(began) - time.Second, day},
		} {
			got := statuses[i].GetDurationUntilReset().AsDuration()
			if statuses[i].GetCode() != want || got < bounds[0] || got > bounds[1] {
				t.Errorf("service %d: %v, want %v in %v", i, statuses[i], want, bounds)
			}
		}
	}
}
