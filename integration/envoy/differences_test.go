package envoy

import (
	"os"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/truewindow/ratelimit/integration/servers"
)

const differencesFile = `
domain: api
descriptors:
  - {key: few, rate_limit: {unit: day, requests_per_unit: 3}}
  - {key: many, rate_limit: {unit: day, requests_per_unit: 100}}
  - {key: budget, rate_limit: {unit: day, requests_per_unit: 1000}}
  - {key: none, rate_limit: {unit: day, requests_per_unit: 0}}
  - {key: week, rate_limit: {unit: week, requests_per_unit: 5}}
  - {key: trial, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: part, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: part_x, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: file, value: "*.png", rate_limit: {unit: day, requests_per_unit: 1}}
`

// A difference is a sequence of requests that both services answer differently.
type difference struct {
	name     string
	requests []*rls.RateLimitRequest
	// Answers of envoyproxy/ratelimit, of the service by default, and of the service with alike:
	// for each request the codes of the statuses, or E for an error.
	theirs, ours, alike string
}

func (d *difference) values() []string { return []string{d.theirs, d.ours, d.alike} }

// differences are all that the packages envoy and envoyfile document. Those of figures, which are
// no codes, have tests of their own.
var differences = []difference{
	{"a refused request charges nothing", []*rls.RateLimitRequest{
		call("api", hits(of("few", "a"), 2)), call("api", hits(of("few", "a"), 2)),
		call("api", hits(of("few", "a"), 1)),
	}, "1 2 2", "1 2 1", "1 2 2"},
	{"a budget that is charged at the end stays open", []*rls.RateLimitRequest{
		call("api", hits(of("budget", "a"), 0)), call("api", hits(of("budget", "a"), 900)),
		call("api", hits(of("budget", "a"), 0)), call("api", hits(of("budget", "a"), 900)),
		call("api", hits(of("budget", "a"), 0)),
	}, "1 1 1 2 2", "1 1 1 2 1", "1 1 1 2 2"},
	{"a refused descriptor keeps the others from being charged", []*rls.RateLimitRequest{
		call("api", hits(of("few", "b"), 3)),
		call("api", of("few", "b"), hits(of("few", "c"), 2)),
		call("api", hits(of("few", "c"), 2)),
	}, "1 21 2", "1 21 1", "1 21 2"},
	{"hits_addend 0 is refused if no unit is free", []*rls.RateLimitRequest{
		call("api", hits(of("few", "d"), 3)), call("api", hits(of("few", "d"), 0)),
	}, "1 1", "1 2", "1 1"},
	{"hits_addend 0 of a limit of 0 is refused", []*rls.RateLimitRequest{
		call("api", hits(of("none", "a"), 0)),
	}, "1", "2", "2"},
	{"the units of one history are added", []*rls.RateLimitRequest{
		call("api", hits(of("few", "e"), 2), hits(of("few", "e"), 2)),
	}, "12", "22", "12"},
	{"is_negative_hits gives nothing back", []*rls.RateLimitRequest{
		call("api", hits(of("few", "f"), 3)), call("api", negative(of("few", "f"))),
		call("api", hits(of("few", "f"), 1)),
	}, "1 2 2", "1 1 2", "1 1 2"},
	{"an override has the history of the limit that matches", []*rls.RateLimitRequest{
		call("api", hits(of("few", "g"), 3)), call("api", override(of("few", "g"), 4)),
		call("api", override(of("few", "g"), 4)),
	}, "1 1 2", "1 1 2", "1 1 2"},
	{"an override of a limit on trial is on trial", []*rls.RateLimitRequest{
		call("api", override(of("trial", "a"), 1)), call("api", override(of("trial", "a"), 1)),
	}, "1 2", "1 1", "1 1"},
	{"histories are never mixed up by underscores", []*rls.RateLimitRequest{
		call("api", of("part", "x_y")), call("api", of("part_x", "y")),
	}, "1 2", "1 1", "1 1"},
	{"an asterisk stands anywhere", []*rls.RateLimitRequest{
		call("api", of("file", "a.png")), call("api", of("file", "a.png")),
	}, "1 1", "1 2", "1 2"},
	{"an empty domain or list is an invalid argument", []*rls.RateLimitRequest{
		call("", of("few", "h")), call("api"),
	}, "E E", "I I", "I I"},
}

func hits(d *ratelimitv3.RateLimitDescriptor, n uint64) *ratelimitv3.RateLimitDescriptor {
	d.HitsAddend = wrapperspb.UInt64(n)
	return d
}

func negative(d *ratelimitv3.RateLimitDescriptor) *ratelimitv3.RateLimitDescriptor {
	d.IsNegativeHits = true
	return d
}

func override(d *ratelimitv3.RateLimitDescriptor, n uint32) *ratelimitv3.RateLimitDescriptor {
	d.Limit = &ratelimitv3.RateLimitDescriptor_RateLimitOverride{
		RequestsPerUnit: n, Unit: typev3.RateLimitUnit_DAY}
	return d
}

// TestDifferences shows each difference that changes a code.
func TestDifferences(t *testing.T) {
	setEnvironment(t, servers.Start(t, servers.Newest()).Addr,
		map[string]string{"api.yaml": differencesFile})
	for i, s := range []*service{startTheirs(t), startOurs(t), startOurs(t, alike...)} {
		for _, d := range differences {
			if got := s.codes(t, d.requests); got != d.values()[i] {
				t.Errorf("%s: service %d answers %s, want %s", d.name, i, got, d.values()[i])
			}
		}
		// The answers of the services by default must not count for the one that is alike.
		server := servers.Connect(t, os.Getenv("REDIS_URL"))
		if err := server.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// codes returns the answers to requests, as in difference.
func (s *service) codes(t *testing.T, requests []*rls.RateLimitRequest) string {
	t.Helper()
	var text []byte
	for i, req := range requests {
		if i > 0 {
			text = append(text, ' ')
		}
		resp, err := s.ShouldRateLimit(t.Context(), req)
		switch status.Code(err) {
		case codes.OK:
		case codes.InvalidArgument:
			text = append(text, 'I')
		default:
			text = append(text, 'E')
		}
		for _, s := range resp.GetStatuses() {
			text = append(text, '0'+byte(s.GetCode()))
		}
	}
	return string(text)
}
