package envoy

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// A descriptor is one of a file of envoyproxy/ratelimit; that of a domain has only Descriptors.
type descriptor struct {
	Domain      string        `yaml:"domain,omitempty"`
	Key         string        `yaml:"key,omitempty"`
	Value       string        `yaml:"value,omitempty"`
	RateLimit   *rateLimit    `yaml:"rate_limit,omitempty"`
	ShadowMode  bool          `yaml:"shadow_mode,omitempty"`
	Descriptors []*descriptor `yaml:"descriptors,omitempty"`
}

type rateLimit struct {
	Unit      string  `yaml:"unit,omitempty"`
	Requests  *int    `yaml:"requests_per_unit,omitempty"`
	Unlimited bool    `yaml:"unlimited,omitempty"`
	Name      string  `yaml:"name,omitempty"`
	Replaces  []named `yaml:"replaces,omitempty"`
}

type named struct {
	Name string `yaml:"name"`
}

// randomly makes configurations and requests.
type randomly struct{ *rand.Rand }

func pick[T any](r randomly, of ...T) T { return of[r.IntN(len(of))] }

// oneIn is true once in n times.
func (r randomly) oneIn(n int) bool { return r.IntN(n) == 0 }

// domains returns n domains, and their files.
func (r randomly) domains(t *testing.T, n int) (all []*descriptor, files map[string]string) {
	t.Helper()
	files = make(map[string]string)
	for i := range n {
		d := &descriptor{Domain: fmt.Sprintf("domain%d", i), Descriptors: r.descriptors(0)}
		text, err := yaml.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		all, files[d.Domain+".yaml"] = append(all, d), string(text)
	}
	return all, files
}

// descriptors returns siblings at a depth.
func (r randomly) descriptors(depth int) (all []*descriptor) {
	const deepest = 3
	taken := make(map[string]bool)
	for range 1 + r.IntN(5) {
		d := &descriptor{
			Key:        pick(r, "a", "b", "path", "key"),
			Value:      pick(r, "", "", "x", "y", "x*", "/v1*", "*"),
			ShadowMode: r.oneIn(6),
		}
		if taken[d.Key+"_"+d.Value] {
			continue
		}
		taken[d.Key+"_"+d.Value] = true
		if !r.oneIn(4) {
			d.RateLimit = r.rateLimit()
		}
		if depth < deepest && r.oneIn(2) {
			d.Descriptors = r.descriptors(depth + 1)
		}
		all = append(all, d)
	}
	return all
}

// rateLimit has units in which no window turns over during a test, and few names, so that limits
// replace others.
func (r randomly) rateLimit() *rateLimit {
	l := new(rateLimit)
	if r.oneIn(3) {
		l.Name = pick(r, "one", "two", "three")
	}
	if name := pick(r, "one", "two", "three"); r.oneIn(8) && name != l.Name {
		l.Replaces = []named{{name}}
	}
	if l.Unlimited = r.oneIn(8); l.Unlimited {
		return l
	}
	l.Unit = pick(r, "hour", "day", "DAY", "week", "month", "year")
	l.Requests = new(pick(r, 0, 1, 2, 5, 10, 20, 50))
	return l
}

// request returns a request for one of the domains, or for an unknown one.
func (r randomly) request(domains []*descriptor) *rls.RateLimitRequest {
	in := pick(r, domains...)
	req := &rls.RateLimitRequest{Domain: in.Domain}
	if r.oneIn(50) {
		req.Domain = "unknown"
	}
	if r.oneIn(3) {
		req.HitsAddend = uint32(1 + r.IntN(3))
	}
	for range 1 + r.IntN(3) {
		d := of(r.entries(in)...)
		r.setHits(d)
		req.Descriptors = append(req.Descriptors, d)
	}
	if r.oneIn(20) { // the same history twice
		req.Descriptors = append(req.Descriptors, req.Descriptors[0])
	}
	return req
}

func (r randomly) setHits(d *ratelimitv3.RateLimitDescriptor) {
	switch r.IntN(8) {
	case 0:
		d.HitsAddend = wrapperspb.UInt64(0)
	case 1:
		d.HitsAddend = wrapperspb.UInt64(uint64(1 + r.IntN(12)))
	}
}

// entries returns keys and values that mostly follow the descriptors below d.
func (r randomly) entries(d *descriptor) (pairs []string) {
	if r.oneIn(40) {
		return nil
	}
	for len(d.Descriptors) > 0 && (len(pairs) == 0 || !r.oneIn(3)) {
		d = pick(r, d.Descriptors...)
		pairs = append(pairs, d.Key, r.value(d.Value))
	}
	if r.oneIn(10) {
		pairs = append(pairs, pick(r, "a", "other"), r.value(""))
	}
	return pairs
}

// value returns one that mostly matches what a file says.
func (r randomly) value(configured string) string {
	prefix, pattern := strings.CutSuffix(configured, "*")
	if pattern {
		return prefix + pick(r, "", "1", "2", "*")
	}
	if configured != "" && !r.oneIn(10) {
		return configured
	}
	return pick(r, "", "x", "y", "xx", "z", "/v1/chat", "with_bar", "é")
}
