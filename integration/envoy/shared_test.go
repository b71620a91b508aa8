package envoy

import (
	"testing"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/truewindow/ratelimit/integration/servers"
)

// TestSharedThreshold: the values of a pattern with share_threshold have one history at both
// services, also where the limit is below it, and those of another have one each.
func TestSharedThreshold(t *testing.T) {
	setEnvironment(t, servers.Start(t, servers.Newest()).Addr, map[string]string{"api.yaml": `
domain: api
descriptors:
  - {key: one, value: "a*", share_threshold: true, rate_limit: {unit: day, requests_per_unit: 2}}
  - {key: each, value: "a*", rate_limit: {unit: day, requests_per_unit: 2}}
  - key: above
    value: "a*"
    share_threshold: true
    descriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 1}}]
`})
	var requests []*rls.RateLimitRequest
	for _, d := range [][]string{{"one", "a1"}, {"one", "a2"}, {"one", "a3"}, {"one", "b"},
		{"each", "a1"}, {"each", "a1"}, {"each", "a2"}, {"each", "a1"},
		{"above", "a1", "user", "x"}, {"above", "a2", "user", "x"}, {"above", "a2", "user", "y"}} {
		requests = append(requests, call("api", of(d...)))
	}
	const want = "1 1 2 1 1 1 1 2 1 2 1"
	for name, s := range map[string]*service{"theirs": startTheirs(t), "ours": startOurs(t)} {
		if got := s.codes(t, requests); got != want {
			t.Errorf("%s answers %s, want %s", name, got, want)
		}
	}
}
