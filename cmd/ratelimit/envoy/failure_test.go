package envoy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	limitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
	"github.com/truewindow/ratelimit/driver"
)

func TestInvalidRequests(t *testing.T) {
	many := func(n int) []string { return slices.Repeat([]string{"user=1"}, n) }
	withOverride := func(o *limitv3.RateLimitDescriptor_RateLimitOverride) *rls.RateLimitRequest {
		req := request("user=1")
		req.Descriptors[0].Limit = o
		return req
	}
	noDomain, longDomain := request("user=1"), request("user=1")
	noDomain.Domain, longDomain.Domain = "", strings.Repeat("d", 1025)
	f := start(t, Config{})
	for name, c := range map[string]struct {
		req  *rls.RateLimitRequest
		want string // empty: it is right
	}{
		"no domain":        {noDomain, "the domain is empty"},
		"long domain":      {longDomain, "the domain is longer than 1024 bytes"},
		"no descriptors":   {request(), "there are no descriptors"},
		"many descriptors": {request(many(100)...), ""},
		"too many":         {request(many(101)...), "there are more than 100 descriptors"},
		"entries":          {request(strings.Join(many(100), ",")), ""},
		"too many entries": {request("user=1", strings.Join(many(101), ",")),
			"descriptor 2 has more than 100 entries"},
		"no entries": {&rls.RateLimitRequest{Domain: "shop",
			Descriptors: []*limitv3.RateLimitDescriptor{{}}}, ""},
		"long value": {request("user=" + strings.Repeat("v", 1<<19)), ""},
		"long key": {request(strings.Repeat("k", 1025)),
			"descriptor 1 has a key of more than 1024 bytes"},
		"no unit": {withOverride(&limitv3.RateLimitDescriptor_RateLimitOverride{}),
			"the limit of descriptor 1 has no unit"},
		"other unit": {withOverride(&limitv3.RateLimitDescriptor_RateLimitOverride{Unit: 99}),
			"the limit of descriptor 1 has no unit"},
		"zero": {withOverride(&limitv3.RateLimitDescriptor_RateLimitOverride{
			Unit: typev3.RateLimitUnit_DAY, UnitMultiplier: wrapperspb.UInt32(0)}),
			"the limit of descriptor 1 has a unit_multiplier that is 0"},
		"long time": {withOverride(&limitv3.RateLimitDescriptor_RateLimitOverride{
			Unit: typev3.RateLimitUnit_MONTH, UnitMultiplier: wrapperspb.UInt32(13)}),
			"the limit of descriptor 1 has a unit_multiplier that is 0, or a time of more than"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := f.client.ShouldRateLimit(t.Context(), c.req)
			switch s := status.Convert(err); {
			case c.want == "" && err != nil:
				t.Errorf("the error is %v", err)
			case c.want != "" && (s.Code() != codes.InvalidArgument ||
				!strings.HasPrefix(s.Message(), c.want)):
				t.Errorf("the error is %v, want %s", err, c.want)
			}
		})
	}
	if got := f.service.Stats(); got.Invalid != 10 || got.Failed != 0 {
		t.Errorf("%+v, want 10 that are invalid", got)
	}
	if !strings.Contains(f.log.String(), "call not valid") {
		t.Errorf("the log is %s", f.log)
	}
}

const secret = "secret-of-a-user"

func TestFailures(t *testing.T) {
	always := &rules.Limit{
		Name: "tokens", Key: []string{"budget"}, Always: true,
		Rate: rules.Rate{Units: 1, Window: time.Hour},
	}
	for name, c := range map[string]struct {
		err  error
		text string
		want codes.Code
	}{
		"unavailable":    {driver.ErrUnavailable, "user=", codes.Unavailable},
		"unknown":        {driver.ErrOutcomeUnknown, "user=", codes.Unavailable},
		"capacity":       {driver.ErrCapacity, "user=", codes.Unavailable},
		"contended":      {driver.ErrContended, "user=", codes.Unavailable},
		"corrupt":        {driver.ErrCorruptState, "user=", codes.Unavailable},
		"no script":      {driver.ErrNoScript, "user=", codes.Internal},
		"others":         {errors.New("other"), "user=", codes.Internal},
		"too many units": {nil, "budget=", codes.InvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			store := down{fmt.Errorf("%w: at host.internal", c.err)}
			f := startOn(t, store, Config{}, always)
			req := request(c.text + secret)
			if c.text == "budget=" {
				req.Descriptors[0].HitsAddend = wrapperspb.UInt64(1 << 50)
			}
			_, err := f.client.ShouldRateLimit(t.Context(), req)
			if status.Code(err) != c.want || strings.Contains(err.Error(), secret) ||
				strings.Contains(err.Error(), "host.internal") {
				t.Errorf("the error is %v, want %v", err, c.want)
			}
			if got := f.service.Stats(); got.Failed != 1 || got.Invalid != 0 {
				t.Errorf("%+v", got)
			}
			log := f.log.String()
			if !strings.Contains(log, "call undecided") || !strings.Contains(log, "domain=shop") ||
				strings.Contains(log, secret) {
				t.Errorf("the log is %s", log)
			}
		})
	}
}

func TestNoLimitsLoaded(t *testing.T) {
	s, err := New(Config{Decider: decision.New(down{})})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.ShouldRateLimit(t.Context(), request("user=1")); status.Code(err) !=
		codes.Unavailable {
		t.Errorf("the error is %v", err)
	}
}

func TestLogOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		s := newService(t, down{driver.ErrUnavailable}, Config{}, &log)
		for range 25 {
			_, _ = s.ShouldRateLimit(t.Context(), request("user=1"))
			time.Sleep(100 * time.Millisecond)
		}
		if got := strings.Count(log.String(), "\n"); got != 3 {
			t.Errorf("%d lines, want 3", got)
		}
	})
}

// hang is a decider that never decides.
type hang struct{}

func (hang) Decide(
	ctx context.Context, _ []decision.Request, _ decision.Options,
) (decision.Decision, error) {
	<-ctx.Done()
	return decision.Decision{}, fmt.Errorf("%w: %w", driver.ErrUnavailable, ctx.Err())
}

func (hang) Resume(string, ...decision.Request) (*ratelimit.Reservation, error) {
	return nil, ratelimit.ErrUnavailable
}

func (hang) Within(
	context.Context, string, *ratelimit.Reservation, ...ratelimit.Claim,
) (bool, error) {
	return false, ratelimit.ErrUnavailable
}

func TestEnvoyGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Config{Decider: hang{}, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if _, err := s.ShouldRateLimit(ctx, request("a=1")); status.Code(err) !=
			codes.DeadlineExceeded {
			t.Errorf("the error is %v", err)
		}
		if got := s.Stats(); got.Ended != 1 || got.Failed != 0 {
			t.Errorf("%+v", got)
		}
	})
}
