package headers_test

import (
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/httplimit/headers"
)

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// fields returns a header of the lines, each a name and a value.
func fields(lines ...string) http.Header {
	h := http.Header{}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		h.Add(name, value)
	}
	return h
}

const (
	hour  = time.Hour
	never = math.MaxInt64 / time.Second * time.Second
)

// TestParse reads the fields as their vendors and drafts document them.
func TestParse(t *testing.T) {
	for _, tt := range []struct {
		name  string
		lines []string
		want  []headers.Quota
	}{
		{"nothing", nil, nil},
		{"draft-11", []string{
			`RateLimit-Policy: "hour";q=1000;w=3600, "day";q=5000;w=86400`,
			`RateLimit: "day";r=100;t=36000`},
			[]headers.Quota{{Name: "day", Limit: 5000, Window: 24 * hour, Remaining: 100,
				Reset: 10 * hour}, {Name: "hour", Limit: 1000, Window: hour, Remaining: -1}}},
		{"lines of one list", []string{`RateLimit: "a";r=1;t=2`, `RateLimit: "b";r=3`},
			[]headers.Quota{{Name: "a", Limit: -1, Remaining: 1, Reset: 2 * time.Second},
				{Name: "b", Limit: -1, Remaining: 3}}},
		{"bytes", []string{`RateLimit-Policy: "up";q=65535;qu="content-bytes";w=10`,
			`RateLimit: "up";r=0;t=9`},
			[]headers.Quota{{Name: "up", Unit: headers.ContentBytes, Limit: 65535,
				Window: 10 * time.Second, Reset: 9 * time.Second}}},
		{"calls in flight", []string{`RateLimit-Policy: "c";q=4;qu="concurrent-requests"`,
			`RateLimit: "c";r=0`},
			[]headers.Quota{{Name: "c", Unit: headers.ConcurrentRequests, Limit: 4}}},
		{"requests are the default", []string{`RateLimit-Policy: "c";q=4;qu="requests"`},
			[]headers.Quota{{Name: "c", Limit: 4, Remaining: -1}}},
		{"partitions", []string{
			`RateLimit-Policy: "p";q=9;w=60;pk=:YQ==:, "p";q=8;w=60;pk=:Yg==:, "all";q=7;w=1`,
			`RateLimit: "p";r=1;pk=:Yg==:, "all";r=2;pk=:YQ==:`},
			[]headers.Quota{
				{Name: "p", Limit: 8, Window: time.Minute, Remaining: 1},
				{Name: "all", Limit: 7, Window: time.Second, Remaining: 2},
				{Name: "p", Limit: 9, Window: time.Minute, Remaining: -1}}},
		{"Cloudflare", []string{`Ratelimit: "default";r=50;t=30`,
			`Ratelimit-Policy: "burst";q=100;w=60`},
			[]headers.Quota{
				{Name: "default", Limit: -1, Remaining: 50, Reset: 30 * time.Second},
				{Name: "burst", Limit: 100, Window: time.Minute, Remaining: -1}}},
		{"Atlassian", []string{`Beta-RateLimit-Policy: "global-app-quota";q=65000;w=3600`,
			`Beta-RateLimit: "global-app-quota";r=0;t=1800`},
			[]headers.Quota{{Name: "global-app-quota", Limit: 65000, Window: hour,
				Reset: 30 * time.Minute}}},
		{"names as Tokens", []string{`RateLimit: burst;r=1;t=2`},
			[]headers.Quota{{Name: "burst", Limit: -1, Remaining: 1, Reset: 2 * time.Second}}},
		{"parameters of others", []string{
			`RateLimit: "a";r=1;acme-x=?0;y=1.5;z=@7;u=%"%c3%a9";v=tok;w;t=2`},
			[]headers.Quota{{Name: "a", Limit: -1, Remaining: 1, Reset: 2 * time.Second}}},
		{"draft-07", []string{`RateLimit: limit=100, remaining=50, reset=5`},
			[]headers.Quota{{Limit: 100, Remaining: 50, Reset: 5 * time.Second}}},
		{"draft-07 with windows", []string{`RateLimit-Policy: 10;w=1, 100;w=60`,
			`RateLimit: limit=100, remaining=50, reset=5`},
			[]headers.Quota{{Limit: 100, Window: time.Minute, Remaining: 50,
				Reset: 5 * time.Second}}},
		{"draft-07 with other members", []string{
			`RateLimit: limit=10, policy="10;w=1", remaining=-1`},
			[]headers.Quota{{Limit: 10, Remaining: -1}}},
		{"draft-06", []string{`RateLimit-Limit: 10`, `RateLimit-Policy: 10;w=1, 50;w=60`,
			`RateLimit-Remaining: 9`, `RateLimit-Reset: 1`},
			[]headers.Quota{{Limit: 10, Window: time.Second, Remaining: 9, Reset: time.Second}}},
		{"draft-02", []string{`RateLimit-Limit: 100, 100;w=10, 1000;w=3600;comment="x"`,
			`RateLimit-Remaining: 0`, `RateLimit-Reset: 50`},
			[]headers.Quota{{Limit: 100, Window: 10 * time.Second, Reset: 50 * time.Second}}},
		{"Envoy", []string{`x-ratelimit-limit: 10, 10;w=1;name="per-ip", 1000;w=3600`,
			`x-ratelimit-remaining: 3`, `x-ratelimit-reset: 1`},
			[]headers.Quota{{Limit: 10, Window: time.Second, Remaining: 3, Reset: time.Second}}},
		{"GitHub", []string{`x-ratelimit-limit: 5000`, `x-ratelimit-remaining: 4987`,
			`x-ratelimit-used: 13`, `x-ratelimit-resource: core`,
			`x-ratelimit-reset: 1795437000`},
			[]headers.Quota{{Name: "core", Limit: 5000, Remaining: 4987, Reset: 30 * time.Minute}}},
		{"milliseconds since the epoch", []string{`X-RateLimit-Limit: 5`,
			`X-RateLimit-Remaining: 0`, `X-RateLimit-Reset: 1795435200250`},
			[]headers.Quota{{Limit: 5, Reset: 250 * time.Millisecond}}},
		{"RFC 3339", []string{`X-RateLimit-Remaining: 0`,
			`X-RateLimit-Reset: 2026-11-23T14:00:00+01:00`},
			[]headers.Quota{{Limit: -1, Reset: hour}}},
		{"RFC 3339 without seconds", []string{`X-RateLimit-Remaining: 0`,
			`X-RateLimit-Reset: 2026-11-23T12:05Z`},
			[]headers.Quota{{Limit: -1, Reset: 5 * time.Minute}}},
		{"a date of HTTP", []string{`X-RateLimit-Remaining: 0`,
			`X-RateLimit-Reset: Mon, 23 Nov 2026 12:00:30 GMT`},
			[]headers.Quota{{Limit: -1, Reset: 30 * time.Second}}},
		{"the date counts from that of the answer", []string{`X-RateLimit-Remaining: 0`,
			`Date: Mon, 23 Nov 2026 11:59:00 GMT`, `X-RateLimit-Reset: 1795435200`},
			[]headers.Quota{{Limit: -1, Reset: time.Minute}}},
		{"seconds do not count from the date", []string{`RateLimit-Remaining: 0`,
			`Date: Mon, 23 Nov 2026 11:59:00 GMT`, `RateLimit-Reset: 9`},
			[]headers.Quota{{Limit: -1, Reset: 9 * time.Second}}},
		{"X-Rate-Limit", []string{`x-rate-limit-limit: 900`, `x-rate-limit-remaining: 0`,
			`x-rate-limit-reset: 1795436100`},
			[]headers.Quota{{Limit: 900, Reset: 15 * time.Minute}}},
		{"fractions", []string{`X-RateLimit-Remaining: 96.0`, `X-RateLimit-Reset: 1795435200.5`},
			[]headers.Quota{{Limit: -1, Remaining: 96, Reset: 500 * time.Millisecond}}},
		{"Reset-After first", []string{`X-RateLimit-Limit: 5`, `X-RateLimit-Remaining: 0`,
			`X-RateLimit-Reset: 1795436100.123`, `X-RateLimit-Reset-After: 1.25`},
			[]headers.Quota{{Limit: 5, Reset: 1250 * time.Millisecond}}},
		{"OpenAI", []string{`x-ratelimit-limit-requests: 60`, `x-ratelimit-limit-tokens: 150000`,
			`x-ratelimit-remaining-requests: 59`, `x-ratelimit-remaining-tokens: 0`,
			`x-ratelimit-reset-requests: 1s`, `x-ratelimit-reset-tokens: 6m0s`,
			`x-ratelimit-limit-project-tokens: 90`, `x-ratelimit-remaining-project-tokens: 1`,
			`x-ratelimit-reset-project-tokens: 17ms`},
			[]headers.Quota{
				{Name: "project-tokens", Limit: 90, Remaining: 1, Reset: 17 * time.Millisecond},
				{Name: "requests", Limit: 60, Remaining: 59, Reset: time.Second},
				{Name: "tokens", Limit: 150000, Reset: 6 * time.Minute}}},
		{"Anthropic", []string{`anthropic-ratelimit-requests-limit: 50`,
			`anthropic-ratelimit-requests-remaining: 49`,
			`anthropic-ratelimit-requests-reset: 2026-11-23T12:00:01Z`,
			`anthropic-ratelimit-input-tokens-limit: 40000`,
			`anthropic-ratelimit-input-tokens-remaining: 0`,
			`anthropic-ratelimit-input-tokens-reset: 2026-11-23T12:01:00Z`},
			[]headers.Quota{
				{Name: "input-tokens", Limit: 40000, Reset: time.Minute},
				{Name: "requests", Limit: 50, Remaining: 49, Reset: time.Second}}},
		{"Anthropic's subscriptions", []string{`anthropic-ratelimit-unified-status: rejected`,
			`anthropic-ratelimit-unified-reset: 1795435260`,
			`anthropic-ratelimit-unified-7d_opus-status: Rejected`,
			`anthropic-ratelimit-unified-7d_opus-reset: 1795435320`,
			`anthropic-ratelimit-unified-remaining: 9`},
			[]headers.Quota{{Name: "unified", Limit: -1, Reset: 2 * time.Minute}}},
		{"0 of 0", []string{`X-RateLimit-Limit: 0`, `X-RateLimit-Remaining: 0`},
			[]headers.Quota{{}}},
		{"unlimited", []string{`X-RateLimit-Limit: unlimited`, `X-RateLimit-Remaining: 0`,
			`RateLimit: limit=-1, remaining=0, reset=9`, `X-RateLimit-Limit-Tokens: -1`,
			`X-RateLimit-Remaining-Tokens: 0`}, nil},
		{"a limit in words", []string{`X-RateLimit-Limit: 100 requests`,
			`X-RateLimit-Remaining: 9`}, []headers.Quota{{Limit: 100, Remaining: 9}}},
		{"two forms", []string{`RateLimit: "a";r=1`, `X-RateLimit-Remaining: 2`},
			[]headers.Quota{{Name: "a", Limit: -1, Remaining: 1}, {Limit: -1, Remaining: 2}}},
		{"out of a cache", []string{`RateLimit: "a";r=1`, `Age: 3`}, nil},
		{"not out of a cache", []string{`RateLimit: "a";r=1`, `Age: 0`},
			[]headers.Quota{{Name: "a", Limit: -1, Remaining: 1}}},

		{"a reset in the past", []string{`X-RateLimit-Remaining: 0`,
			`X-RateLimit-Reset: 1795435199`}, []headers.Quota{{Limit: -1}}},
		{"a reset alone", []string{`X-RateLimit-Reset: 9`}, nil},
		{"a negative reset", []string{`X-RateLimit-Limit: 1`, `X-RateLimit-Reset: -9`},
			[]headers.Quota{{Limit: 1, Remaining: -1}}},
		{"a negative duration", []string{`X-RateLimit-Limit: 1`, `X-RateLimit-Reset: -9s`},
			[]headers.Quota{{Limit: 1, Remaining: -1}}},
		{"a reset beyond all dates", []string{`X-RateLimit-Limit: 1`,
			`X-RateLimit-Reset: 99999999999999999999`},
			[]headers.Quota{{Limit: 1, Remaining: -1, Reset: math.MaxInt64}}},
		{"the longest window", []string{`RateLimit-Policy: "x";q=0;w=999999999999999`},
			[]headers.Quota{{Name: "x", Window: never, Remaining: -1}}},
		{"-1 is not none", []string{`X-RateLimit-Limit: -1`, `X-RateLimit-Remaining: -1`}, nil},
		{"two values", []string{`X-RateLimit-Remaining: 0`, `X-RateLimit-Remaining: 5`}, nil},
		{"words", []string{`X-RateLimit-Limit: many`, `X-RateLimit-Remaining: some`}, nil},
		{"an exponent", []string{`X-RateLimit-Remaining: 1e3`}, nil},
		{"no r", []string{`RateLimit: "a";t=1`}, nil},
		{"no q", []string{`RateLimit-Policy: "a";w=1`}, nil},
		{"r is not an Integer", []string{`RateLimit: "a";r="1"`}, nil},
		{"t is negative", []string{`RateLimit: "a";r=1;t=-1`}, nil},
		{"qu is not a String", []string{`RateLimit-Policy: "a";q=1;qu=1`}, nil},
		{"one malformed member", []string{`RateLimit: "a";r=1, "b"`}, nil},
		{"a malformed policy alone", []string{`RateLimit-Policy: "a"`, `RateLimit: "a";r=1`},
			[]headers.Quota{{Name: "a", Limit: -1, Remaining: 1}}},
		{"a comma at the end", []string{`RateLimit: "a";r=1,`}, nil},
		{"an inner list", []string{`RateLimit: ("a");r=1`}, nil},
		{"an open string", []string{`RateLimit: "a;r=1`}, nil},
		{"most members", []string{"RateLimit: " + strings.Repeat(`"a";r=1, `, 64) + `"b";r=1`},
			nil},
		{"a long field", []string{`RateLimit: "` + strings.Repeat("a", 9000) + `";r=1`}, nil},
		{"a long value", []string{`X-RateLimit-Remaining: ` + strings.Repeat("0", 129)}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := headers.Parse(fields(tt.lines...), noon); !slices.Equal(got, tt.want) {
				t.Errorf("%+v\nwant %+v", got, tt.want)
			}
		})
	}
}

// TestWriteParse: Parse reads what Write writes in each format.
func TestWriteParse(t *testing.T) {
	item := minute(ratelimit.Result{
		Remaining: 3, RetryAfter: 10 * time.Second, ResetAfter: time.Minute})
	for format, want := range map[headers.Format]headers.Quota{
		headers.Draft11: {Name: "minute", Limit: 60, Window: time.Minute, Remaining: 3},
		headers.Draft06: {Limit: 60, Remaining: 3},
		headers.XDelta:  {Limit: 60, Remaining: 3},
		headers.XEpoch:  {Limit: 60, Remaining: 3},
	} {
		h := http.Header{}
		headers.Write(h, format, item)
		got := headers.Parse(h, time.Now())
		if len(got) != 1 {
			t.Fatalf("%v: %+v", format, got)
		}
		reset := got[0].Reset
		got[0].Reset = 0
		if got[0] != want || reset > 11*time.Second || reset < 9*time.Second {
			t.Errorf("%v: %+v with a reset of %v, want %+v with 10 s", format, got[0], reset, want)
		}
	}
	h := http.Header{}
	headers.Write(h, headers.None, item)
	if got := headers.Parse(h, noon); got != nil {
		t.Errorf("none: %+v", got)
	}
}

// FuzzParse: for any answer, Parse returns a bounded number of quotas within their ranges.
func FuzzParse(f *testing.F) {
	for _, seed := range [][3]string{
		{`"a";q=1;w=2;pk=:YQ==:`, `"a";r=1;t=2;pk=:YQ==:`, "5"},
		{`10;w=1, 50;w=60`, `limit=100, remaining=50, reset=5`, "1795436100.5"},
		{`"a\"";q=1;x=%"%c3";y=@1;z=?1`, `tok;r=1.5, (1)`, "6m0s"},
		{"", "", "2026-11-23T12:01:00Z"},
		{"", "", "rejected"},
		{"99999999999999999999", `"";r=999999999999999;t=999999999999999`, "99999999999999999999"},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	names := []string{"Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset",
		"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset",
		"X-Ratelimit-Reset-After", "X-Ratelimit-Resource", "X-Ratelimit-Limit-Tokens",
		"X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens",
		"Anthropic-Ratelimit-Tokens-Remaining", "Anthropic-Ratelimit-Tokens-Reset",
		"Anthropic-Ratelimit-Unified-5h-Status", "Anthropic-Ratelimit-Unified-5h-Reset"}
	f.Fuzz(func(t *testing.T, policy, limits, value string) {
		h := http.Header{"Ratelimit-Policy": {policy}, "Ratelimit": {limits},
			"Date": {value}}
		for _, name := range names {
			h[name] = []string{value}
		}
		quotas := headers.Parse(h, noon)
		if len(quotas) > 2*64+6 {
			t.Errorf("%d quotas", len(quotas))
		}
		for _, q := range quotas {
			if q.Limit < -1 || q.Remaining < -1 || q.Window < 0 || q.Reset < 0 ||
				q.Limit < 0 && q.Remaining < 0 {
				t.Errorf("%+v", q)
			}
		}
	})
}

func BenchmarkParse(b *testing.B) {
	for name, h := range map[string]http.Header{
		"nothing": fields("Content-Type: application/json", "Content-Length: 2",
			"Date: Mon, 23 Nov 2026 12:00:00 GMT"),
		"draft-11": fields(`RateLimit-Policy: "hour";q=1000;w=3600, "day";q=5000;w=86400`,
			`RateLimit: "hour";r=1;t=60, "day";r=100;t=36000`),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				headers.Parse(h, noon)
			}
		})
	}
}
