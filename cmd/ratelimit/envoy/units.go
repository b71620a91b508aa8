package envoy

import (
	"math"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
)

const (
	day   = 24 * time.Hour
	month = 30 * day
	year  = 365 * day
)

// units are those of a limit, the longest first.
var units = []struct {
	unit   rls.RateLimitResponse_RateLimit_Unit
	window time.Duration
}{
	{rls.RateLimitResponse_RateLimit_YEAR, year},
	{rls.RateLimitResponse_RateLimit_MONTH, month},
	{rls.RateLimitResponse_RateLimit_WEEK, 7 * day},
	{rls.RateLimitResponse_RateLimit_DAY, day},
	{rls.RateLimitResponse_RateLimit_HOUR, time.Hour},
	{rls.RateLimitResponse_RateLimit_MINUTE, time.Minute},
	{rls.RateLimitResponse_RateLimit_SECOND, time.Second},
}

// currentLimit describes a limit to Envoy. A limit of Envoy's files has the name that they give it,
// and no name if they do not.
func currentLimit(s *decision.Status) *rls.RateLimitResponse_RateLimit {
	l := &rls.RateLimitResponse_RateLimit{
		Name: s.Limit.Name, RequestsPerUnit: clamp(s.Rate.Units),
	}
	if s.Limit.Domain != "" {
		l.Name = s.Limit.Label
	}
	if s.Limit.Algorithm == "month" {
		l.Unit = rls.RateLimitResponse_RateLimit_MONTH
		return l
	}
	l.Unit, l.UnitMultiplier = unitOf(s.Rate.Window)
	return l
}

// unitOf returns the longest unit of which a window is a multiple, with the multiplier unless it is
// 1. A window that is no number of seconds has no unit.
func unitOf(window time.Duration) (
	unit rls.RateLimitResponse_RateLimit_Unit, multiplier *wrapperspb.UInt32Value,
) {
	for _, u := range units {
		n := int64(window / u.window)
		switch {
		case n < 1 || n > math.MaxUint32 || window%u.window != 0:
		case n == 1:
			return u.unit, nil
		default:
			return u.unit, wrapperspb.UInt32(uint32(n))
		}
	}
	return rls.RateLimitResponse_RateLimit_UNKNOWN, nil
}
