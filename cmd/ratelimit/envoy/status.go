package envoy

import (
	"math"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
)

// A view is what the status of a descriptor shows: one of the limits that apply to it.
type view struct {
	rank rank
	*decision.Status
}

// A rank orders the limits of a descriptor.
type rank uint8

const (
	nothing  rank = iota // no limit, or one without figures
	tried                // a limit that only tries
	enforced             // a limit with figures
	refuses              // a limit that refuses
)

// viewOf returns the limit that binds: of those that refuse the one with the longest wait, else the
// one that is enforced and has the fewest units left.
func viewOf(p decision.Part) view {
	var best view
	for i := range p.Statuses {
		v := view{rankOf(&p.Statuses[i]), &p.Statuses[i]}
		if best.Status == nil || v.before(best) {
			best = v
		}
	}
	return best
}

func rankOf(s *decision.Status) rank {
	switch {
	case !s.Allowed && !s.Shadow:
		return refuses
	case !s.Asked && !s.Never || s.Result.Source == ratelimit.SourceOpen:
		return nothing
	case s.Shadow:
		return tried
	}
	return enforced
}

// before reports whether v binds more than w.
func (v view) before(w view) bool {
	switch {
	case v.rank != w.rank:
		return v.rank > w.rank
	case v.rank == nothing:
		return false
	case v.rank < refuses:
		return v.Result.Remaining < w.Result.Remaining
	case v.Never != w.Never:
		return v.Never
	}
	return v.Result.RetryAfter > w.Result.RetryAfter
}

// nearest returns the view that is nearest to its limit.
func nearest(views []view) view {
	var best view
	for _, v := range views {
		if v.rank != nothing && (best.Status == nil || v.before(best)) {
			best = v
		}
	}
	return best
}

func (v view) code() rls.RateLimitResponse_Code {
	if v.rank == refuses {
		return rls.RateLimitResponse_OVER_LIMIT
	}
	return rls.RateLimitResponse_OK
}

func (v view) status() *rls.RateLimitResponse_DescriptorStatus {
	s := &rls.RateLimitResponse_DescriptorStatus{Code: v.code()}
	if v.rank == nothing {
		if v.Status != nil && v.Rate.Unlimited {
			s.LimitRemaining = math.MaxUint32
		}
		return s
	}
	s.CurrentLimit = currentLimit(v.Status)
	s.LimitRemaining = clamp(v.Result.Remaining)
	if seconds, ok := v.seconds(); ok {
		s.DurationUntilReset = &durationpb.Duration{Seconds: seconds}
	}
	return s
}

// seconds returns after how many seconds a refused call is admitted, or all units are free. It is
// false if that is never. Envoy makes Retry-After of it, so it is rounded up.
func (v view) seconds() (seconds int64, ok bool) {
	switch {
	case v.Allowed:
		return ceilSeconds(v.Result.ResetAfter), true
	case v.Never:
		return 0, false
	}
	return max(1, ceilSeconds(v.Result.RetryAfter)), true
}

func ceilSeconds(d time.Duration) int64 {
	return int64((d + time.Second - 1) / time.Second)
}

func clamp(n int64) uint32 { return uint32(min(max(n, 0), math.MaxUint32)) }
