package envoy

import (
	"math"
	"time"

	limitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
	"github.com/truewindow/ratelimit/cmd/ratelimit/envoyfile"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
	"github.com/truewindow/ratelimit/driver"
)

// Bounds of what Envoy's own configuration decides. Values come from requests, and have none but
// that of a message: an error would let a request through, since Envoy admits by default what could
// not be decided, so whoever makes a value long must not get one. Keys of stores have the hashes of
// long values.
const (
	maxDescriptors = 100
	maxEntries     = 100
	maxName        = 1024 // bytes of the domain, and of the key of an entry
)

// A translation is what a request asks of the decider.
type translation struct {
	requests []decision.Request
	at       []int // for each descriptor, the index of its request, or -1
	negative int   // descriptors with is_negative_hits
}

// parts returns the answers to the descriptors. Those that were not asked have no statuses.
func (c *translation) parts(d decision.Decision) []decision.Part {
	if c.negative == 0 {
		return d.Parts
	}
	parts := make([]decision.Part, len(c.at))
	for i, at := range c.at {
		if at >= 0 {
			parts[i] = d.Parts[at]
		}
	}
	return parts
}

func invalid(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}

// translate reads a request. The error is an InvalidArgument.
func translate(req *rls.RateLimitRequest, domains *envoyfile.Domains) (*translation, error) {
	descriptors := req.GetDescriptors()
	switch {
	case req.GetDomain() == "":
		return nil, invalid("the domain is empty")
	case len(req.GetDomain()) > maxName:
		return nil, invalid("the domain is longer than %d bytes", maxName)
	case len(descriptors) == 0:
		return nil, invalid("there are no descriptors")
	case len(descriptors) > maxDescriptors:
		return nil, invalid("there are more than %d descriptors", maxDescriptors)
	}
	c := &translation{
		requests: make([]decision.Request, 0, len(descriptors)), at: make([]int, len(descriptors)),
	}
	for i, d := range descriptors {
		r, err := requestOf(req, i, d, domains)
		if err != nil {
			return nil, err
		}
		c.at[i] = len(c.requests)
		if d.GetIsNegativeHits() {
			c.at[i] = -1
			c.negative++
			continue
		}
		c.requests = append(c.requests, r)
	}
	return c, nil
}

func requestOf(
	req *rls.RateLimitRequest, i int, d *limitv3.RateLimitDescriptor, domains *envoyfile.Domains,
) (decision.Request, error) {
	r := decision.Request{Domain: req.GetDomain(), N: hits(req, d), Used: d.GetHitsAddend() != nil}
	entries := d.GetEntries()
	if len(entries) > maxEntries {
		return r, invalid("descriptor %d has more than %d entries", i+1, maxEntries)
	}
	r.Descriptor = make(rules.Descriptor, len(entries))
	for j, e := range entries {
		if len(e.GetKey()) > maxName {
			return r, invalid("descriptor %d has a key of more than %d bytes", i+1, maxName)
		}
		r.Descriptor[j] = rules.Entry{Name: e.GetKey(), Value: e.GetValue()}
	}
	if d.GetLimit() == nil {
		return r, nil
	}
	rate, err := overrideRate(i, d.GetLimit())
	if err != nil {
		return r, err
	}
	r.Override = &rate
	if domains != nil {
		r.Descriptor = domains.Override(r.Domain, r.Descriptor)
	}
	return r, nil
}

// hits returns the units of a descriptor: its own, else those of the request, of which 0 is 1.
func hits(req *rls.RateLimitRequest, d *limitv3.RateLimitDescriptor) int64 {
	if own := d.GetHitsAddend(); own != nil {
		return int64(min(own.GetValue(), math.MaxInt64))
	}
	return max(1, int64(req.GetHitsAddend()))
}

var overrideUnits = map[typev3.RateLimitUnit]time.Duration{
	typev3.RateLimitUnit_SECOND: time.Second, typev3.RateLimitUnit_MINUTE: time.Minute,
	typev3.RateLimitUnit_HOUR: time.Hour, typev3.RateLimitUnit_DAY: day,
	typev3.RateLimitUnit_MONTH: month, typev3.RateLimitUnit_YEAR: year,
}

func overrideRate(
	i int, o *limitv3.RateLimitDescriptor_RateLimitOverride,
) (rules.Rate, error) {
	unit, ok := overrideUnits[o.GetUnit()]
	if !ok {
		return rules.Rate{}, invalid("the limit of descriptor %d has no unit that is known", i+1)
	}
	multiplier := int64(1)
	if m := o.GetUnitMultiplier(); m != nil {
		multiplier = int64(m.GetValue())
	}
	if multiplier < 1 || multiplier > int64(driver.MaxWindow/unit) {
		return rules.Rate{}, invalid("the limit of descriptor %d has a unit_multiplier that is 0, "+
			"or a time of more than %d days", i+1, driver.MaxWindow/day)
	}
	return rules.Rate{
		Units: int64(o.GetRequestsPerUnit()), Window: time.Duration(multiplier) * unit,
	}, nil
}
