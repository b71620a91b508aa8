package envoy

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	config "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"github.com/truewindow/ratelimit/integration/gateway"
	"github.com/truewindow/ratelimit/integration/servers"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
)

// startBoth starts both services as clients of a gateway, on one server.
func startBoth(t testing.TB, g *gateway.Gateway) (theirs, ours *service) {
	t.Helper()
	addr := servers.Start(t, servers.Newest()).Addr
	setEnvironment(t, addr, nil)
	const headers = "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS"
	t.Setenv(headers, g.Client("theirs"))
	theirs = startTheirs(t)
	t.Setenv(headers, g.Client("ours"))
	return theirs, startOurs(t, alike...)
}

// TestXDSSameAnswers: one server of xDS feeds both services. They accept each configuration, and
// answer random requests alike, whose configuration changes while others run; nothing is left of a
// domain that vanishes.
func TestXDSSameAnswers(t *testing.T) {
	rounds, requests := depth.Of(4, 50), depth.Of(300, 2000)
	g := startGateway(t)
	theirs, ours := startBoth(t, g)
	var all counts
	for round := range rounds {
		seed := rand.Uint64()
		r := randomly{rand.New(rand.NewPCG(seed, 0))}
		domains, _ := r.domains(t, 10)
		resources := []*config.RateLimitConfig{beside(round)}
		for _, d := range domains {
			d.Domain = fmt.Sprintf("round%d-%s", round, d.Domain) // counts are of one round
			resources = append(resources, resourceOf(d))
		}
		stop := keepCalling(t, ours)
		refusal := g.Send(resources...)
		stop()
		if refusal != nil {
			t.Fatalf("seed %d: refused: %v", seed, refusal)
		}
		c := &comparison{histories: make(map[string]*history)}
		began := time.Now()
		for range requests {
			req := r.request(domains)
			if req.GetDomain() == "unknown" && round > 0 {
				req.Domain = strings.Replace(domains[0].Domain, fmt.Sprint("round", round),
					fmt.Sprint("round", round-1), 1)
			}
			c.compare(req, theirs.ask(t, req), ours.ask(t, req))
		}
		if time.Now().UTC().Truncate(time.Hour).After(began) {
			continue // a fixed window has turned over
		}
		for _, problem := range c.problems[:min(len(c.problems), 5)] {
			t.Errorf("seed %d: %s", seed, problem)
		}
		all.add(c.counts)
	}
	t.Logf("%d rounds of %d requests: %+v", rounds, requests, all)
	if all.Admitted == 0 || all.Refused == 0 || all.Shadow == 0 || all.Unlimited == 0 {
		t.Errorf("not all answers were compared: %+v", all)
	}
}

func (c *counts) add(d counts) {
	c.Compared += d.Compared
	c.Admitted += d.Admitted
	c.Refused += d.Refused
	c.Shadow += d.Shadow
	c.Unlimited += d.Unlimited
	c.None += d.None
	c.Apart += d.Apart
}

// beside returns the domain of keepCalling, with a rate that changes.
func beside(round int) *config.RateLimitConfig {
	return &config.RateLimitConfig{Name: "beside", Domain: "beside",
		Descriptors: []*config.RateLimitDescriptor{{Key: "key",
			RateLimit: &config.RateLimitPolicy{Unit: config.RateLimitUnit_DAY,
				RequestsPerUnit: uint32(1<<30 + round)}}}}
}

// keepCalling calls a service until stop, and reports each call that it does not answer.
func keepCalling(t testing.TB, s *service) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	for i := range 4 {
		calls.Go(func() {
			for ctx.Err() == nil {
				req := call("beside", of("key", fmt.Sprint(i)))
				resp, err := s.ShouldRateLimit(t.Context(), req)
				if err != nil || resp.GetOverallCode() != ok {
					t.Errorf("%v %v", resp, err)
					return
				}
			}
		})
	}
	return func() {
		cancel()
		calls.Wait()
	}
}

// TestXDSRefusals: both services refuse the same configurations, and go on with the one before.
func TestXDSRefusals(t *testing.T) {
	g := startGateway(t)
	theirs, ours := startBoth(t, g)
	leaf := func(change func(*config.RateLimitDescriptor)) *config.RateLimitConfig {
		d := &config.RateLimitDescriptor{Key: "few", RateLimit: &config.RateLimitPolicy{
			Unit: config.RateLimitUnit_DAY, RequestsPerUnit: 2}}
		change(d)
		return &config.RateLimitConfig{Name: "api", Domain: "api",
			Descriptors: []*config.RateLimitDescriptor{d}}
	}
	good := leaf(func(*config.RateLimitDescriptor) {})
	if err := g.Send(good); err != nil {
		t.Fatal(err)
	}
	asked := 0
	expectInForce := func(name string) {
		t.Helper()
		asked++
		for _, s := range []*service{theirs, ours} {
			value := fmt.Sprint(asked)
			if got := s.codes(t, []*rls.RateLimitRequest{call("api", of("few", value)),
				call("api", of("few", value)), call("api", of("few", value))}); got != "1 1 2" {
				t.Errorf("%s: the answers are %s", name, got)
			}
		}
	}
	expectInForce("good")
	for name, resources := range map[string][]*config.RateLimitConfig{
		"no domain": {{Name: "api"}},
		"no key":    {leaf(func(d *config.RateLimitDescriptor) { d.Key = "" })},
		"no unit":   {leaf(func(d *config.RateLimitDescriptor) { d.RateLimit.Unit = 0 })},
		"an unknown unit": {leaf(func(d *config.RateLimitDescriptor) {
			d.RateLimit.Unit = 99
		})},
		"a unit of unlimited": {leaf(func(d *config.RateLimitDescriptor) {
			d.RateLimit.Unlimited = true
		})},
		"a descriptor twice": {leaf(func(d *config.RateLimitDescriptor) {
			d.Descriptors = []*config.RateLimitDescriptor{{Key: "a_b"}, {Key: "a", Value: "b"}}
		})},
		"an empty replaces": {leaf(func(d *config.RateLimitDescriptor) {
			d.RateLimit.Replaces = []*config.RateLimitReplace{{}}
		})},
		"a limit that replaces itself": {leaf(func(d *config.RateLimitDescriptor) {
			d.RateLimit.Name, d.RateLimit.Replaces = "a", []*config.RateLimitReplace{{Name: "a"}}
		})},
		"a domain twice":                {good, {Name: "other", Domain: "api"}},
		"a wrong one beside a good one": {good, {Name: "other"}},
	} {
		if err := g.Send(resources...); err == nil {
			t.Errorf("%s is accepted", name)
		}
		expectInForce(name)
	}
	if err := g.Send(good, &config.RateLimitConfig{Name: "o", Domain: "other"}); err != nil {
		t.Fatal(err)
	}
	expectInForce("good again")
	if err := g.Send(); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*service{theirs, ours} {
		if got := s.codes(t, []*rls.RateLimitRequest{call("api", of("few", "1"))}); got != "1" {
			t.Errorf("without limits: %s", got)
		}
	}
	large := &config.RateLimitConfig{Name: "large", Domain: "large"}
	for i := range 5000 {
		large.Descriptors = append(large.Descriptors, &config.RateLimitDescriptor{
			Key: "key", Value: fmt.Sprint(i), RateLimit: good.Descriptors[0].RateLimit})
	}
	began := time.Now()
	if err := g.Send(large); err != nil {
		t.Fatal(err)
	}
	servers.Measured("5,000 descriptors by xDS: in force at both services within %v",
		time.Since(began).Round(time.Millisecond))
	for _, s := range []*service{theirs, ours} {
		last := call("large", of("key", "4999"))
		if got := s.codes(t, []*rls.RateLimitRequest{last, last, last}); got != "1 1 2" {
			t.Errorf("of 5,000 descriptors: %s", got)
		}
	}
}

// TestXDSReload: a configuration of 10,000 limits that changes again and again, by one limit, keeps
// no call from its answer, and counts go on.
func TestXDSReload(t *testing.T) {
	g := startGateway(t)
	setEnvironment(t, servers.Start(t, servers.Newest()).Addr, nil)
	t.Setenv("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", g.Client("ours"))
	s := startOurs(t)
	large := func(changing uint32) *config.RateLimitConfig {
		c := &config.RateLimitConfig{Name: "large", Domain: "large"}
		for i := range 10_000 {
			c.Descriptors = append(c.Descriptors, &config.RateLimitDescriptor{
				Key: "key", Value: fmt.Sprint(i), RateLimit: &config.RateLimitPolicy{
					Unit: config.RateLimitUnit_DAY, RequestsPerUnit: 1 << 30}})
		}
		c.Descriptors[0].RateLimit.RequestsPerUnit = changing
		return c
	}
	if err := g.Send(large(1)); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	took := make(map[bool][]time.Duration) // by whether configurations change
	changing := false
	calls := int64(0)
	ctx, cancel := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for i := range 4 {
		callers.Go(func() {
			for tick := time.NewTicker(5 * time.Millisecond); ctx.Err() == nil; <-tick.C {
				began := time.Now()
				_, err := s.ShouldRateLimit(t.Context(), call("large", of("key", "9999")))
				elapsed := time.Since(began)
				mu.Lock()
				took[changing], calls = append(took[changing], elapsed), calls+1
				mu.Unlock()
				if err != nil {
					t.Errorf("caller %d: %v", i, err)
					return
				}
			}
		})
	}
	time.Sleep(depth.Of(time.Second, 20*time.Second))
	mu.Lock()
	changing = true
	mu.Unlock()
	changes := depth.Of(4, 60)
	for i := range changes {
		time.Sleep(300 * time.Millisecond) // as gateways, which gather changes
		if err := g.Send(large(uint32(2 + i))); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	callers.Wait()
	left := s.ask(t, call("large", hits(of("key", "9999"), 0))).GetStatuses()[0].GetLimitRemaining()
	if counted := int64(1<<30 - left); counted != calls {
		t.Errorf("%d of %d calls are counted", counted, calls)
	}
	for _, during := range []bool{false, true} {
		slices.Sort(took[during])
		n := len(took[during])
		servers.Measured("xDS, 10,000 limits, %d changes, changing %t: %d calls, half within %v, "+
			"99.9 %% within %v, slowest %v", changes, during, n, took[during][n/2],
			took[during][n*999/1000], took[during][n-1])
	}
}
