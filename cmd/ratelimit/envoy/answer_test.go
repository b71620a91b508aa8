package envoy

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
	"github.com/truewindow/ratelimit/driver"
)

func fieldsOf(headers []*core.HeaderValue) string {
	var fields []string
	for _, h := range headers {
		fields = append(fields, h.GetKey()+": "+h.GetValue())
	}
	return strings.Join(fields, ", ")
}

func TestHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defaults := DefaultHeaders()
		f := start(t, Config{ResponseHeaders: &defaults,
			RequestHeaders: &Headers{"x-limit", "x-remaining", "x-reset"}})
		own := strings.NewReplacer(
			"Limit", "x-limit", "Remaining", "x-remaining", "Reset", "x-reset")
		for _, c := range []struct{ request, want string }{
			{"user=42 plan=a", "Limit: 2, Remaining: 1, Reset: 3600"},
			{"user=42", "Limit: 10, Remaining: 8, Reset: 60"},
			{"user=root", ""},
			{"none=1", ""},
			{"user=root plan=a user=43", "Limit: 2, Remaining: 0, Reset: 3600"},
			{"user=42 plan=a", "Limit: 2, Remaining: 0, Reset: 3600"}, // refused
			{"user=banned plan=b", "Limit: 0, Remaining: 0"},          // never
			{"tried=1", "Limit: 1, Remaining: 0, Reset: 60"},
		} {
			resp := f.ask(request(strings.Fields(c.request)...))
			got := strings.ReplaceAll(fieldsOf(resp.GetResponseHeadersToAdd()), "RateLimit-", "")
			if got != c.want {
				t.Errorf("%s: %s, want %s", c.request, got, c.want)
			}
			got = fieldsOf(resp.GetRequestHeadersToAdd())
			if want := own.Replace(c.want); got != want {
				t.Errorf("%s: %s, want %s", c.request, got, want)
			}
		}
		many := request("user=44")
		many.HitsAddend = 11
		if got := fieldsOf(f.ask(many).GetResponseHeadersToAdd()); got != "RateLimit-Limit: 10" {
			t.Errorf("11 of 10 units: %s, want no Remaining", got)
		}
		if resp := start(t, Config{}).call(ok, "user=42"); resp.GetResponseHeadersToAdd() != nil ||
			resp.GetRequestHeadersToAdd() != nil || resp.GetDynamicMetadata() != nil {
			t.Errorf("without settings: %v", resp)
		}
	})
}

func TestWrongConfig(t *testing.T) {
	if _, err := New(Config{}); err == nil || !strings.Contains(err.Error(), "Decider") {
		t.Errorf("without a Decider: %v", err)
	}
	for _, name := range []string{"", "a b", "a:b", "ü"} {
		c := Config{Decider: &decision.Decider{}, RequestHeaders: &Headers{"a", "b", name}}
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), strconv.Quote(name)) {
			t.Errorf("a field named %q: %v", name, err)
		}
	}
}

func TestDynamicMetadata(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, Config{DynamicMetadata: true})
		req := request("plan=a,x=y", "plan=a", "tried=1", "user=42")
		req.HitsAddend = 2
		req.Descriptors[3].HitsAddend = wrapperspb.UInt64(0)
		req.Descriptors[0].Limit = override("", 9, typev3.RateLimitUnit_DAY).Descriptors[0].Limit
		req.Descriptors[0].Limit.UnitMultiplier = wrapperspb.UInt32(3)
		descriptors := `[
			{"entries": ["plan=a", "x=y"],
			 "limit": "requests_per_unit:9 unit:DAY unit_multiplier:{value:3}"},
			{"entries": ["plan=a"]},
			{"entries": ["tried=1"]},
			{"entries": ["user=42"], "hitsAddend": 0}]`
		checkJSON(t, f.expect(ok, req).GetDynamicMetadata(), fmt.Sprintf(
			`{"domain": "shop", "hitsAddend": 2, "descriptors": %s,
			  "metadata": {"list": [1], "plan": {"kind": "paid", "tried": true}}}`, descriptors))
		time.Sleep(time.Minute + 300*time.Microsecond)
		// The metadata of what is refused is left out. All else of the limits is as it was.
		checkJSON(t, f.expect(over, req).GetDynamicMetadata(), fmt.Sprintf(
			`{"domain": "shop", "hitsAddend": 2, "descriptors": %s, "retryAfterMs": 3540000,
			  "metadata": {"plan": {"kind": "other", "tried": true}}}`, descriptors))
		checkJSON(t, f.call(over, "user=banned").GetDynamicMetadata(), `{"domain": "shop",
			"descriptors": [{"entries": ["user=banned"]}]}`)
		checkJSON(t, f.call(ok, "user=root").GetDynamicMetadata(), `{"domain": "shop",
			"descriptors": [{"entries": ["user=root"]}]}`)
	})
}

func checkJSON(t *testing.T, got interface{ AsMap() map[string]any }, want string) {
	t.Helper()
	var w any
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		t.Fatal(err)
	}
	text, _ := json.Marshal(got.AsMap())
	wanted, _ := json.Marshal(w)
	if string(text) != string(wanted) {
		t.Errorf("%s, want\n%s", text, wanted)
	}
}

func TestMergeChangesNoLimit(t *testing.T) {
	a := map[string]any{"m": map[string]any{"x": 1.0}, "s": "a"}
	b := map[string]any{"m": map[string]any{"x": 2.0, "y": 3.0}, "s": "b", "z": nil}
	before := fmt.Sprint(a, b)
	got := merge(merge(nil, a), b)
	if want := "map[m:map[x:1 y:3] s:a z:<nil>]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %v", got, want)
	}
	if after := fmt.Sprint(a, b); after != before {
		t.Errorf("%s, before %s", after, before)
	}
}

// A policy that admits without a store knows no figures, so a status has none.
func TestOpen(t *testing.T) {
	defaults := DefaultHeaders()
	f := startOn(t, down{driver.ErrUnavailable}, Config{ResponseHeaders: &defaults},
		&rules.Limit{Name: "own", Key: []string{"t"}, OnFailure: "open",
			Rate: rules.Rate{Units: 1, Window: time.Hour}})
	resp := f.call(ok, "t=1")
	if text, _ := protojson.Marshal(resp); strings.ReplaceAll(string(text), " ", "") !=
		`{"overallCode":"OK","statuses":[{"code":"OK"}]}` {
		t.Errorf("%s", text)
	}
}
