package envoy

import (
	"fmt"
	"maps"
	"math"
	"time"

	limitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
)

// dynamicMetadata describes a call in the form of envoyproxy/ratelimit: its domain, descriptors and
// units, and the metadata of the limits that admitted it. A refusal has retryAfterMs besides, the
// exact time of which duration_until_reset is the whole seconds.
func dynamicMetadata(
	req *rls.RateLimitRequest, parts []decision.Part, shown []view, nearest view, allowed bool,
) *structpb.Struct {
	descriptors := make([]any, len(req.GetDescriptors()))
	for i, d := range req.GetDescriptors() {
		descriptors[i] = describe(d)
	}
	m := map[string]any{"domain": EscapeInvalid(req.GetDomain()), "descriptors": descriptors}
	if n := req.GetHitsAddend(); n != 0 {
		m["hitsAddend"] = n
	}
	if merged := passedMetadata(parts, shown); len(merged) > 0 {
		m["metadata"] = merged
	}
	if !allowed && nearest.rank == refuses && !nearest.Never {
		wait := nearest.Result.RetryAfter + time.Millisecond - 1
		m["retryAfterMs"] = wait.Milliseconds()
	}
	s, err := structpb.NewStruct(m)
	if err != nil {
		return nil // not UTF-8, which no file is
	}
	return s
}

func describe(d *limitv3.RateLimitDescriptor) map[string]any {
	entries := make([]any, len(d.GetEntries()))
	for i, e := range d.GetEntries() {
		entries[i] = EscapeInvalid(e.GetKey() + "=" + e.GetValue())
	}
	m := map[string]any{"entries": entries}
	if l := d.GetLimit(); l != nil {
		text := fmt.Sprintf("requests_per_unit:%d unit:%v", l.GetRequestsPerUnit(), l.GetUnit())
		if n := l.GetUnitMultiplier(); n != nil {
			text += fmt.Sprintf(" unit_multiplier:{value:%d}", n.GetValue())
		}
		m["limit"] = text
	}
	if n := d.GetHitsAddend(); n != nil {
		m["hitsAddend"] = min(n.GetValue(), math.MaxInt64)
	}
	return m
}

// passedMetadata merges the metadata of the limits of the descriptors that were admitted.
func passedMetadata(parts []decision.Part, shown []view) map[string]any {
	var merged map[string]any
	for i, p := range parts {
		if shown[i].rank == refuses {
			continue
		}
		for _, s := range p.Statuses {
			if !s.Rate.Unlimited && len(s.Limit.Metadata) > 0 {
				merged = merge(merged, s.Limit.Metadata)
			}
		}
	}
	return merged
}

// merge adds to a what b has besides, and returns it. It changes no map of b, and none of a limit.
func merge(a, b map[string]any) map[string]any {
	merged := maps.Clone(a)
	if merged == nil {
		merged = make(map[string]any, len(b))
	}
	for name, value := range b {
		has, there := merged[name]
		into, isMap := has.(map[string]any)
		from, both := value.(map[string]any)
		switch {
		case !there:
			merged[name] = value
		case isMap && both:
			merged[name] = merge(into, from)
		}
	}
	return merged
}
