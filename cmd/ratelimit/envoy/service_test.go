package envoy

import (
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	limitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
	"github.com/truewindow/ratelimit/driver"
)

func TestLimitOfRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, Config{})
		for left := range uint32(10) {
			s := f.call(ok, "user=42").GetStatuses()[0]
			limit := s.GetCurrentLimit()
			if s.GetCode() != ok || s.GetLimitRemaining() != 9-left ||
				limit.GetRequestsPerUnit() != 10 ||
				limit.GetUnit() != rls.RateLimitResponse_RateLimit_MINUTE ||
				limit.GetUnitMultiplier() != nil || limit.GetName() != "" {
				t.Fatalf("call %d: %v", left, s)
			}
		}
		s := f.call(over, "user=42").GetStatuses()[0]
		if s.GetCode() != over || s.GetLimitRemaining() != 0 {
			t.Errorf("the eleventh call: %v", s)
		}
		f.call(ok, "user=43")
		f.call(ok, "user=42,path=/")
		time.Sleep(time.Minute)
		f.call(ok, "user=42")
	})
}

// The wait of a refusal is in whole seconds, and never too short.
func TestDurationUntilReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, Config{})
		f.call(ok, "plan=free")
		time.Sleep(time.Second + 400*time.Millisecond)
		s := f.call(ok, "plan=free").GetStatuses()[0]
		if got := s.GetDurationUntilReset().AsDuration(); got != time.Hour {
			t.Errorf("all units are free in %v, want an hour", got)
		}
		s = f.call(over, "plan=free").GetStatuses()[0]
		wait := s.GetDurationUntilReset().AsDuration()
		if wait != time.Hour-time.Second {
			t.Fatalf("the wait is %v, want 59m59s", wait)
		}
		time.Sleep(wait - time.Second)
		s = f.call(over, "plan=free").GetStatuses()[0]
		if got := s.GetDurationUntilReset().AsDuration(); got != time.Second {
			t.Errorf("the wait is %v, want 1s", got)
		}
		time.Sleep(time.Second)
		f.call(ok, "plan=free")
	})
}

func TestZeroRequestsPerUnit(t *testing.T) {
	f := startOn(t, down{driver.ErrUnavailable}, Config{}) // not even asked
	s := f.call(over, "user=banned").GetStatuses()[0]
	if s.GetCode() != over || s.GetLimitRemaining() != 0 || s.GetDurationUntilReset() != nil ||
		s.GetCurrentLimit() == nil {
		t.Errorf("%v", s)
	}
	asks := request("user=banned")
	asks.Descriptors[0].HitsAddend = wrapperspb.UInt64(0)
	f.expect(over, asks)
}

func TestUnlimited(t *testing.T) {
	f := startOn(t, down{driver.ErrUnavailable}, Config{})
	want := &rls.RateLimitResponse_DescriptorStatus{Code: ok, LimitRemaining: math.MaxUint32}
	if s := f.call(ok, "user=root").GetStatuses()[0]; !proto.Equal(s, want) {
		t.Errorf("%v, want %v", s, want)
	}
}

func TestRefusalChargesNothing(t *testing.T) {
	f := start(t, Config{})
	f.call(ok, "plan=a")
	f.call(ok, "plan=a")
	resp := f.call(over, "user=42", "plan=a", "user=43,path=/")
	for i, want := range []rls.RateLimitResponse_Code{ok, over, ok} {
		if got := resp.GetStatuses()[i].GetCode(); got != want {
			t.Errorf("status %d is %v, want %v", i, got, want)
		}
	}
	f.remaining(10, "user=42")
	f.remaining(3, "user=43,path=/")
}

func TestEach(t *testing.T) {
	f := start(t, Config{Charge: ChargeEach})
	f.call(ok, "plan=a")
	f.call(ok, "plan=a")
	f.call(over, "user=42", "plan=a", "user=43,path=/")
	f.remaining(9, "user=42")
	f.remaining(2, "user=43,path=/")
}

func TestHitsAddend(t *testing.T) {
	f := start(t, Config{})
	req := request("user=42", "user=43", "user=44")
	req.HitsAddend = 4
	req.Descriptors[1].HitsAddend = wrapperspb.UInt64(7)
	req.Descriptors[2].HitsAddend = wrapperspb.UInt64(0)
	f.expect(ok, req)
	f.remaining(6, "user=42")
	f.remaining(3, "user=43")
	f.remaining(10, "user=44")
	s := f.expect(over, req).GetStatuses() // 7 of 3 for one, 4 of 6 for the other
	if s[0].GetCode() != ok || s[1].GetCode() != over || s[1].GetLimitRemaining() != 3 {
		t.Errorf("%v", s)
	}
	f.remaining(6, "user=42")
}

func TestHitsAddendZeroAsks(t *testing.T) {
	for name, c := range map[string]struct {
		config Config
		full   rls.RateLimitResponse_Code
	}{"free": {Config{}, over}, "reached": {Config{Reached: true}, ok}} {
		t.Run(name, func(t *testing.T) {
			f := start(t, c.config)
			asks := request("plan=a")
			asks.Descriptors[0].HitsAddend = wrapperspb.UInt64(0)
			f.call(ok, "plan=a")
			f.expect(ok, asks)
			f.expect(ok, asks)
			f.call(ok, "plan=a")
			f.expect(c.full, asks)
		})
	}
}

func TestHitsAddendAboveTheLimit(t *testing.T) {
	f := start(t, Config{})
	for _, hits := range []uint64{11, 1 << 40, 1<<40 + 1, 1 << 63, math.MaxUint64} {
		req := request("user=42", "plan=a")
		req.Descriptors[0].HitsAddend = wrapperspb.UInt64(hits)
		s := f.expect(over, req).GetStatuses()
		if s[0].GetCode() != over || s[0].GetDurationUntilReset() != nil || s[1].GetCode() != ok {
			t.Errorf("%d hits: %v", hits, s)
		}
	}
	f.remaining(10, "user=42")
	f.remaining(2, "plan=a")
}

func TestOneHistoryTwice(t *testing.T) {
	f := start(t, Config{})
	req := request("user=42", "plan=a", "user=42")
	req.HitsAddend = 2
	s := f.expect(ok, req).GetStatuses()
	if s[0].GetLimitRemaining() != 6 || !proto.Equal(s[0], s[2]) {
		t.Errorf("%v", s)
	}
	f.remaining(6, "user=42")
	s = f.call(over, "plan=b", "plan=b", "plan=b").GetStatuses() // 3 of 2
	if s[0].GetCode() != over || s[0].GetDurationUntilReset() != nil || !proto.Equal(s[0], s[2]) {
		t.Errorf("%v", s)
	}
}

// A call at the end of a stream has to count, whatever the limit.
func TestAlways(t *testing.T) {
	f := start(t, Config{}, &rules.Limit{
		Name: "tokens", Key: []string{"tenant"}, Always: true,
		Rate: rules.Rate{Units: 1000, Window: time.Hour},
	})
	asks, used := request("tenant=acme"), request("tenant=acme")
	asks.Descriptors[0].HitsAddend = wrapperspb.UInt64(0)
	used.Descriptors[0].HitsAddend = wrapperspb.UInt64(900)
	f.expect(ok, asks)
	f.expect(ok, used)
	f.expect(ok, asks)
	f.expect(over, used) // recorded all the same
	f.expect(over, asks)
	used.Descriptors[0].HitsAddend = wrapperspb.UInt64(5000)
	f.expect(over, used)
	if name := f.expect(over, asks).GetStatuses()[0].GetCurrentLimit().GetName(); name != "tokens" {
		t.Errorf("the limit is %q", name)
	}
}

func TestNegativeHits(t *testing.T) {
	f := start(t, Config{})
	req := request("user=42", "user=43")
	req.HitsAddend = 4
	f.expect(ok, req)
	req.Descriptors[0].IsNegativeHits = true
	s := f.expect(ok, req).GetStatuses()
	if s[0].GetCode() != ok || s[0].GetCurrentLimit() != nil || s[1].GetLimitRemaining() != 2 {
		t.Errorf("%v", s)
	}
	f.remaining(6, "user=42")
	req.Descriptors[1].IsNegativeHits = true
	f.expect(ok, req)
	if got := f.service.Stats(); got.Negative != 3 || got.Unknown != 0 {
		t.Errorf("%+v", got)
	}
}

func TestUnits(t *testing.T) {
	limitOf := func(window time.Duration) *rules.Limit {
		return &rules.Limit{
			Name: strings.ReplaceAll(window.String(), "m0s", "m"), Key: []string{"own"},
			Rate: rules.Rate{Units: 1 << 40, Window: window},
			When: []rules.Condition{{Entry: "own", Pattern: window.String()}},
		}
	}
	f := start(t, Config{}, limitOf(500*time.Millisecond), limitOf(90*time.Second),
		limitOf(10*time.Minute), limitOf(14*day))
	limit := func(
		name string, requests uint32, unit rls.RateLimitResponse_RateLimit_Unit, multiplier uint32,
	) *rls.RateLimitResponse_RateLimit {
		l := &rls.RateLimitResponse_RateLimit{Name: name, RequestsPerUnit: requests, Unit: unit}
		if multiplier != 0 {
			l.UnitMultiplier = wrapperspb.UInt32(multiplier)
		}
		return l
	}
	for text, want := range map[string]*rls.RateLimitResponse_RateLimit{
		"special=1":    limit("", 5, rls.RateLimitResponse_RateLimit_WEEK, 0),
		"monthly=1":    limit("", 1, rls.RateLimitResponse_RateLimit_MONTH, 0),
		"yearly=1":     limit("", 1<<32-1, rls.RateLimitResponse_RateLimit_YEAR, 0),
		"plan=1":       limit("plans", 2, rls.RateLimitResponse_RateLimit_HOUR, 0),
		"own=500ms":    limit("500ms", 1<<32-1, rls.RateLimitResponse_RateLimit_UNKNOWN, 0),
		"own=1m30s":    limit("1m30s", 1<<32-1, rls.RateLimitResponse_RateLimit_SECOND, 90),
		"own=10m0s":    limit("10m", 1<<32-1, rls.RateLimitResponse_RateLimit_MINUTE, 10),
		"own=336h0m0s": limit("336h0m", 1<<32-1, rls.RateLimitResponse_RateLimit_WEEK, 2),
	} {
		s := f.call(ok, text).GetStatuses()[0]
		if !proto.Equal(s.GetCurrentLimit(), want) {
			t.Errorf("%s: %v, want %v", text, s.GetCurrentLimit(), want)
		}
	}
}

func TestUnitsAreRolling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, Config{})
		f.call(ok, "special=1", "special=1", "special=1", "special=1", "special=1")
		time.Sleep(7*day - time.Microsecond)
		f.call(over, "special=1")
		time.Sleep(time.Microsecond)
		f.call(ok, "special=1")
	})
}

func override(text string, units uint32, unit typev3.RateLimitUnit) *rls.RateLimitRequest {
	req := request(text)
	req.Descriptors[0].Limit = &limitv3.RateLimitDescriptor_RateLimitOverride{
		RequestsPerUnit: units, Unit: unit,
	}
	return req
}

func TestOverride(t *testing.T) {
	f := start(t, Config{})
	for range 5 {
		f.call(ok, "user=42")
	}
	large := override("user=42", 1000, typev3.RateLimitUnit_HOUR)
	s := f.expect(ok, large).GetStatuses()[0]
	if s.GetLimitRemaining() != 994 || s.GetCurrentLimit().GetRequestsPerUnit() != 1000 ||
		s.GetCurrentLimit().GetUnit() != rls.RateLimitResponse_RateLimit_HOUR {
		t.Errorf("%v", s)
	}
	f.expect(over, override("user=42", 6, typev3.RateLimitUnit_MINUTE)) // on the same history
	s = f.expect(over, override("user=root", 0, typev3.RateLimitUnit_DAY)).GetStatuses()[0]
	if s.GetDurationUntilReset() != nil {
		t.Errorf("0 requests a day: %v", s)
	}
	large.Descriptors[0].Limit.UnitMultiplier = wrapperspb.UInt32(30)
	limit := f.expect(ok, large).GetStatuses()[0].GetCurrentLimit()
	if limit.GetUnitMultiplier().GetValue() != 30 ||
		limit.GetUnit() != rls.RateLimitResponse_RateLimit_HOUR {
		t.Errorf("30 hours: %v", limit)
	}
	f.remaining(3, "user=42")
}

// A descriptor without a limit of its own has one in a domain of the files if it brings it.
func TestOverrideAlone(t *testing.T) {
	f := start(t, Config{})
	req := override("other=1,more=2", 2, typev3.RateLimitUnit_YEAR)
	f.call(ok, "other=1,more=2")
	if s := f.expect(ok, req).GetStatuses()[0]; s.GetLimitRemaining() != 1 {
		t.Errorf("%v", s)
	}
	f.expect(ok, req)
	f.expect(over, req)
	f.expect(ok, override("other=1,more=3", 2, typev3.RateLimitUnit_YEAR))
	if s := f.call(ok, "other=1,more=2").GetStatuses()[0]; s.GetCurrentLimit() != nil {
		t.Errorf("without a limit: %v", s)
	}
	req.Domain = "elsewhere"
	f.expect(ok, req)
	if got := f.service.Stats().Unknown; got != 1 {
		t.Errorf("%d unknown domains, want 1", got)
	}
}

func TestUnknownDomain(t *testing.T) {
	f := start(t, Config{}, &rules.Limit{
		Name: "own", Key: []string{"domain", "tenant"},
		Rate: rules.Rate{Units: 1, Window: time.Hour},
	})
	req := request("user=banned", "user=42")
	req.Domain = "elsewhere"
	for _, s := range f.expect(ok, req).GetStatuses() {
		if !proto.Equal(s, &rls.RateLimitResponse_DescriptorStatus{Code: ok}) {
			t.Errorf("%v", s)
		}
	}
	if got := f.service.Stats().Unknown; got != 1 {
		t.Errorf("%d unknown domains, want 1", got)
	}
	f.call(ok, "nothing=1") // a domain of the files
	req = request("tenant=acme")
	req.Domain = "elsewhere" // other limits apply
	f.expect(ok, req)
	f.expect(over, req)
	req.Domain = "anywhere"
	f.expect(ok, req)
	if got := f.service.Stats().Unknown; got != 1 {
		t.Errorf("%d unknown domains, want 1", got)
	}
}

func TestShadow(t *testing.T) {
	f := start(t, Config{})
	f.call(ok, "tried=1", "user=42")
	s := f.call(ok, "tried=1", "user=42").GetStatuses()
	if s[0].GetCode() != ok || s[0].GetLimitRemaining() != 0 || s[1].GetLimitRemaining() != 8 {
		t.Errorf("%v", s)
	}
}

func TestShadowOfAll(t *testing.T) {
	f := start(t, Config{Shadow: true})
	for range 2 {
		f.call(ok, "plan=1")
	}
	if s := f.call(ok, "plan=1").GetStatuses()[0]; s.GetCode() != over {
		t.Errorf("%v", s)
	}
	if got := f.service.Stats(); got.Shadow != 1 || got.Over != 0 || got.OK != 2 ||
		got.Calls != 3 {
		t.Errorf("%+v", got)
	}
}

func TestReplaces(t *testing.T) {
	f := start(t, Config{})
	for range 5 {
		s := f.call(ok, "plan=a", "special=1").GetStatuses()
		if s[0].GetCurrentLimit() != nil || s[1].GetCurrentLimit() == nil {
			t.Fatalf("%v", s)
		}
	}
	f.call(over, "plan=a", "special=1")
	f.remaining(2, "plan=a")
}

// On a Cluster the descriptors of a call are decided one by one.
func TestCluster(t *testing.T) {
	store, err := memorystore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	f := startOn(t, apart{store}, Config{})
	f.call(ok, "user=42", "plan=a", "user=43,path=/")
	f.call(ok, "plan=a", "user=42")
	f.call(over, "user=42", "plan=a")
	f.remaining(8, "user=42")
}

// A status shows the limit that binds, of several that apply to a descriptor.
func TestLimitThatBinds(t *testing.T) {
	own := func(name string, units int64, change func(*rules.Limit)) *rules.Limit {
		l := &rules.Limit{
			Name: name, Key: []string{"t"}, Rate: rules.Rate{Units: units, Window: time.Hour},
		}
		if change != nil {
			change(l)
		}
		return l
	}
	f := start(t, Config{},
		own("free", 0, func(l *rules.Limit) { l.Rate.Unlimited = true }),
		own("tried", 1, func(l *rules.Limit) { l.Shadow = true }),
		own("large", 50, nil), own("small", 3, nil),
		own("day", 3, func(l *rules.Limit) { l.Rate.Window = day }))
	shows := func(code rls.RateLimitResponse_Code, want string, hits uint64) {
		t.Helper()
		req := request("t=1")
		req.Descriptors[0].HitsAddend = wrapperspb.UInt64(hits)
		if s := f.expect(code, req).GetStatuses()[0]; s.GetCurrentLimit().GetName() != want {
			t.Errorf("%v, want the limit %s", s, want)
		}
	}
	shows(ok, "small", 3)
	shows(over, "day", 1)   // the longest wait
	shows(over, "small", 4) // never
}
