package envoy

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	config "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"

	"github.com/truewindow/ratelimit/integration/servers"
)

// What Envoy AI Gateway sends, of internal/ratelimit/translator and internal/extensionserver at
// c217da8a: descriptors of the back end, the model and a rule, of which each leaf has quota_mode.
// When a request comes it asks for a unit of each rule that matches, and when the answer ends it
// charges the cost to each, with a hits_addend of the descriptor.

// A bucket is one of a policy: a rule with its number, or the default one.
type bucket struct {
	key      string // of the descriptor
	distinct bool   // one bucket for each value of the header
	limit    uint32
	shadow   bool
}

// bucketsOf returns the configuration of a back end and a model.
func bucketsOf(backend, model string, buckets ...bucket) *config.RateLimitConfig {
	m := &config.RateLimitDescriptor{Key: "model_name_override", Value: model}
	for _, b := range buckets {
		leaf := &config.RateLimitDescriptor{Key: b.key, Value: b.key, ShadowMode: b.shadow,
			QuotaMode: true, RateLimit: &config.RateLimitPolicy{
				Unit: config.RateLimitUnit_HOUR, RequestsPerUnit: b.limit}}
		if b.distinct {
			leaf.Value = ""
		}
		m.Descriptors = append(m.Descriptors, leaf)
	}
	return &config.RateLimitConfig{Name: "ai-gateway-quota", Domain: "ai-gateway-quota",
		Descriptors: []*config.RateLimitDescriptor{{Key: "backend_name", Value: backend,
			Descriptors: []*config.RateLimitDescriptor{m}}}}
}

// ofBucket returns the descriptor of a bucket for a tenant.
func ofBucket(backend, model string, b bucket, tenant string) *ratelimitv3.RateLimitDescriptor {
	value := b.key
	if b.distinct {
		value = tenant
	}
	return of("backend_name", backend, "model_name_override", model, b.key, value)
}

const (
	backend = "default/my-backend"
	gpt4    = "gpt-4"
)

// The buckets of the whole example of its page on quotas.
var (
	premium   = bucket{key: "rule-0-x-tenant-id|premium-tenant-match-0", limit: 50000}
	perTenant = bucket{key: "rule-1-x-tenant-id-match-0", distinct: true, limit: 5000}
	byDefault = bucket{key: "rule-2-match--1", limit: 10000}
)

// TestAIGateway: a request of a tenant is admitted if one of the buckets that match has room, and
// its cost is charged to all of them. The buckets of a model are a model of sums.
func TestAIGateway(t *testing.T) {
	g := startGateway(t)
	setEnvironment(t, servers.Start(t, servers.Newest()).Addr, nil)
	t.Setenv("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", g.Client("ours"))
	s := startOurs(t)
	for name, shadow := range map[string]bool{"enforced": false, "shadow": true} {
		t.Run(name, func(t *testing.T) {
			model := gpt4 + "-" + name // counts of its own
			perTenant := perTenant
			perTenant.shadow = shadow
			if err := g.Send(bucketsOf(backend, model, premium, perTenant, byDefault)); err != nil {
				t.Fatal(err)
			}
			used := make(map[string]int64)
			admitted := make(map[bool]int)
			for range 400 {
				tenant := pick(randomly{rand.New(rand.NewPCG(rand.Uint64(), 0))},
					"premium-tenant", "a", "b")
				buckets := []bucket{perTenant, byDefault}
				if tenant == "premium-tenant" {
					buckets = append(buckets, premium)
				}
				var asks []*ratelimitv3.RateLimitDescriptor
				room := false
				for _, b := range buckets {
					asks = append(asks, ofBucket(backend, model, b, tenant))
					room = room || b.shadow || used[b.history(tenant)] < int64(b.limit)
				}
				resp := s.ask(t, call("ai-gateway-quota", asks...))
				if got := resp.GetOverallCode() == ok; got != room {
					t.Fatalf("%s: admitted %t, want %t; used %v: %v", tenant, got, room, used, resp)
				}
				admitted[room]++
				if !room {
					continue
				}
				cost := uint64(1 + rand.IntN(2000)) // of a cost expression
				var charges []*ratelimitv3.RateLimitDescriptor
				for _, b := range buckets {
					if used[b.history(tenant)] < int64(b.limit) { // else it is not charged
						used[b.history(tenant)]++
					}
					used[b.history(tenant)] += int64(cost)
					charges = append(charges, hits(ofBucket(backend, model, b, tenant), cost))
				}
				s.ask(t, call("ai-gateway-quota", charges...))
			}
			for _, tenant := range []string{"premium-tenant", "a", "b"} {
				for _, b := range []bucket{perTenant, byDefault, premium} {
					left := max(0, int64(b.limit)-used[b.history(tenant)])
					resp := s.ask(t, call("ai-gateway-quota",
						hits(ofBucket(backend, model, b, tenant), 0)))
					if got := int64(resp.GetStatuses()[0].GetLimitRemaining()); got != left {
						t.Errorf("%s of %s has %d left, want %d", b.key, tenant, got, left)
					}
				}
			}
			if admitted[true] == 0 || admitted[false] == 0 && !shadow {
				t.Errorf("admitted %v", admitted)
			}
		})
	}
}

// TestAIGatewayBackEnds: a route with two back ends, each with a quota of a model, asks for both,
// and charges the one that answered. A request is refused when both are used up.
func TestAIGatewayBackEnds(t *testing.T) {
	g := startGateway(t)
	setEnvironment(t, servers.Start(t, servers.Newest()).Addr, nil)
	t.Setenv("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", g.Client("ours"))
	s := startOurs(t)
	limits := map[string]int64{"default/openai": 10_000, "default/bedrock": 4_000}
	c := &config.RateLimitConfig{Name: "ai-gateway-quota", Domain: "ai-gateway-quota"}
	for _, name := range []string{"default/openai", "default/bedrock"} {
		c.Descriptors = append(c.Descriptors, &config.RateLimitDescriptor{
			Key: "backend_name", Value: name, Descriptors: []*config.RateLimitDescriptor{{
				Key: "model_name_override", Value: gpt4, QuotaMode: true,
				RateLimit: &config.RateLimitPolicy{Unit: config.RateLimitUnit_DAY,
					RequestsPerUnit: uint32(limits[name])}}}})
	}
	if err := g.Send(c); err != nil {
		t.Fatal(err)
	}
	ofModel := func(name string) *ratelimitv3.RateLimitDescriptor {
		return of("backend_name", name, "model_name_override", gpt4)
	}
	used := make(map[string]int64)
	for i := 0; ; i++ {
		resp := s.ask(t, call("ai-gateway-quota", ofModel("default/openai"),
			ofModel("default/bedrock")))
		var room []string
		for j, name := range []string{"default/openai", "default/bedrock"} {
			has := used[name] < limits[name]
			if has {
				room = append(room, name)
				used[name]++
			}
			if got := resp.GetStatuses()[j].GetCode() == ok; got != has {
				t.Fatalf("call %d: %s has room: %t, want %t", i, name, got, has)
			}
		}
		if got := resp.GetOverallCode() == ok; got != (len(room) > 0) {
			t.Fatalf("call %d is admitted: %t; used %v", i, got, used)
		}
		if len(room) == 0 {
			break
		}
		answers := room[rand.IntN(len(room))]
		// Weights as of a cost expression: input and six times the output.
		cost := int64(rand.IntN(300) + 6*rand.IntN(200))
		used[answers] += cost
		s.ask(t, call("ai-gateway-quota", hits(ofModel(answers), uint64(cost))))
	}
	for name, limit := range limits {
		if over := used[name] - limit; over < 0 || over > 1500 {
			t.Errorf("%s: %d of %d units", name, used[name], limit)
		}
	}
}

// history names what a bucket counts for a tenant.
func (b bucket) history(tenant string) string {
	if b.distinct {
		return b.key + " " + tenant
	}
	return b.key
}

const raceCallers = 64

// A race is what callers of several daemons got who ask for units of two quotas at once.
type race struct {
	admitted, refused atomic.Int64
	taken             [2]atomic.Int64 // units of each quota, when a call came
	late              atomic.Int64    // units of both, when a stream ended
}

// raceFor has callers make calls, and charge so many units more for each that is admitted.
func raceFor(
	t *testing.T, daemons []*service, each int, late uint64, quotas ...func() *entries,
) *race {
	r := new(race)
	var calls sync.WaitGroup
	for caller := range raceCallers {
		calls.Go(func() {
			d := daemons[caller%len(daemons)]
			for range each {
				resp := d.ask(t, call("ai-gateway-quota", quotas[0](), quotas[1]()))
				if resp.GetOverallCode() != ok {
					r.refused.Add(1)
					continue
				}
				r.admitted.Add(1)
				for i, s := range resp.GetStatuses() {
					if s.GetCode() == ok {
						r.taken[i].Add(1)
					}
				}
				if late > 0 {
					d.ask(t, call("ai-gateway-quota", hits(quotas[0](), late),
						hits(quotas[1](), late)))
					r.late.Add(int64(late))
				}
			}
		})
	}
	calls.Wait()
	return r
}

type entries = ratelimitv3.RateLimitDescriptor

// TestQuotaAcrossDaemons: callers of three daemons at the edge of two quotas get all of each and no
// unit more, whoever is first. If streams charge too when they end, no quota is above its limit but
// for what was on its way, and both are closed.
func TestQuotaAcrossDaemons(t *testing.T) {
	g := startGateway(t)
	setEnvironment(t, servers.Start(t, servers.Newest()).Addr, nil)
	var daemons []*service
	for i := range 3 {
		t.Setenv("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", g.Client(fmt.Sprint("daemon", i)))
		daemons = append(daemons, startOurs(t))
	}
	primary, secondary := bucket{key: "rule-0-match-0", limit: 300},
		bucket{key: "rule-1-match--1", limit: 500}
	for round, late := range []uint64{0, 0, 3, 3} {
		model := fmt.Sprint("model", round)
		if err := g.Send(bucketsOf(backend, model, primary, secondary)); err != nil {
			t.Fatal(err)
		}
		ofQuota := func(b bucket) func() *entries {
			return func() *entries { return ofBucket(backend, model, b, "") }
		}
		const each = 12
		r := raceFor(t, daemons, each, late, ofQuota(primary), ofQuota(secondary))
		p, s := r.taken[0].Load(), r.taken[1].Load()
		admitted, charged := r.admitted.Load(), r.late.Load()
		text := fmt.Sprintf("round %d: primary %d of 300, secondary %d of 500, %d admitted, %d "+
			"refused, %d charged late", round, p, s, admitted, r.refused.Load(), charged)
		// All of the primary's calls take of the secondary too, as long as it has room.
		if late == 0 && (p != 300 || s != 500 || admitted != 500) {
			t.Error(text)
		}
		onTheWay := int64(raceCallers) * int64(late)
		if p > 300 || s > 500 || p+charged < 300 || s+charged < 500 ||
			s+charged > 500+onTheWay || admitted+r.refused.Load() != raceCallers*each {
			t.Error(text)
		}
		for _, d := range daemons {
			resp := d.ask(t, call("ai-gateway-quota", hits(ofQuota(primary)(), 0),
				hits(ofQuota(secondary)(), 0)))
			both := resp.GetStatuses()
			if both[0].GetLimitRemaining()+both[1].GetLimitRemaining() != 0 ||
				resp.GetOverallCode() != over {
				t.Errorf("left: %v", resp)
			}
		}
	}
}
