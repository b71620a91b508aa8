package command

import (
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
)

// TestWarnOfStreams: limits with holds that only Envoy's calls reach are named, unless another
// limit charges always.
func TestWarnOfStreams(t *testing.T) {
	const tokens = "limits:\n  - {name: tokens, when: {domain: ai}, key: [user], max: 9/1h, "
	const others = "  - {name: others, key: [user], max: 9/1h, "
	for _, tt := range []struct {
		limits, grpc string
		want         bool
	}{
		{tokens + "holds: 1m}\n", "127.0.0.1:0", true},
		{tokens + "holds: 1m}\n", "", false},
		{tokens + "warn: 80%}\n", "127.0.0.1:0", false},
		{tokens + "charge: always}\n", "127.0.0.1:0", false},
		{tokens + "holds: 1m}\n" + others + "charge: always}\n", "127.0.0.1:0", false},
		{"limits:\n" + others + "holds: 1m}\n", "127.0.0.1:0", false}, // for HTTP
		{strings.ReplaceAll(tokens, "max: 9/1h", "max: 9, algorithm: in-flight") +
			"holds: 1m}\n", "127.0.0.1:0", false},
	} {
		args := []string{"--config=" + apitest.ConfigFile(t, tt.limits)}
		if tt.grpc != "" {
			args = append(args, "--grpc-addr="+tt.grpc)
		}
		_, log, stop := start(t, args...)
		stop()
		warned := strings.Contains(log.String(), `never fills","limits":[`)
		if warned != tt.want {
			t.Errorf("%s at %q: warned %t: %s", tt.limits, tt.grpc, warned, log)
		}
	}
}

// TestWarnOfSlots: limits of different keys on a cluster are named at the start, unless a tag puts
// their keys on one server.
func TestWarnOfSlots(t *testing.T) {
	const users = "limits:\n  - {name: users, key: [tenant, user], max: 9/1h}\n"
	const both = users + "  - {name: tenants, key: [tenant], max: 9/1h}\n"
	for _, tt := range []struct {
		limits, scheme, params string
		want                   bool
	}{
		{both, "redis+cluster", "", true},
		{both, "redis+cluster", "?timeout=1s", true},
		{both, "redis+cluster", "?tag=/", false},
		{both, "redis", "", false},
		{users, "redis+cluster", "", false},
		{users + "  - {name: same, key: [tenant, user], max: 9/1m}\n", "redis+cluster", "", false},
		{users + "  - {name: tried, key: [user], max: 9/1m, mode: shadow}\n", "redis+cluster", "",
			false},
		{"domain: api\ndescriptors:\n" +
			"  - {key: a, rate_limit: {unit: day, requests_per_unit: 3}}\n" +
			"  - {key: b, rate_limit: {unit: day, requests_per_unit: 3}}\n", "redis+cluster", "",
			true},
	} {
		_, log, stop := start(t, "--config="+apitest.ConfigFile(t, tt.limits),
			"--on-failure=closed",
			"--store="+tt.scheme+"://"+unusedAddr(t)+tt.params)
		stop()
		if warned := strings.Contains(log.String(), "decided one by one"); warned != tt.want {
			t.Errorf("%s%s: %s: warned %t: %s", tt.scheme, tt.params, tt.limits, warned, log)
		}
	}
}
