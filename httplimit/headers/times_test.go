package headers_test

import (
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/httplimit/headers"
)

// unread marks a field that says nothing.
const unread = time.Duration(-1)

func at(s string) time.Time {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		panic(err)
	}
	return t
}

func waitOf(h http.Header, now time.Time) time.Duration {
	if wait, ok := headers.RetryAfter(h, now); ok {
		return wait
	}
	return unread
}

// TestRealRetryAfter reads what services have sent, or have in their documentation.
func TestRealRetryAfter(t *testing.T) {
	for _, tt := range []struct {
		service, now string
		lines        []string
		want         time.Duration
	}{
		{"Shopify", "", []string{"Retry-After: 2.0"}, 2 * time.Second},
		{"Microsoft Graph, documentation", "", []string{"Retry-After: 2.128"},
			2128 * time.Millisecond},
		{"Microsoft Graph", "", []string{"Retry-After: 299.997"}, 299997 * time.Millisecond},
		{"SpaceTraders", "", []string{"Retry-After: 0.493"}, 493 * time.Millisecond},
		{"urllib3 #2861", "", []string{"Retry-After: 0.503"}, 503 * time.Millisecond},
		{"Docker Hub", "2025-05-01T22:01:18Z", []string{"date: Thu, 01 May 2025 22:01:18 GMT",
			"retry-after: 1746136938", "x-ratelimit-reset: 1746136938"}, time.Minute},
		{"Docker Hub, X-Retry-After", "2021-09-10T00:42:00Z", []string{"x-retry-after: 1631234567"},
			47 * time.Second},
		{"Docker Hub, a time that is over", "2026-11-25T12:00:00Z",
			[]string{"retry-after: 1631234567"}, 0},
		{"Câmara dos Deputados", "", []string{"Retry-After: 30s"}, 30 * time.Second},
		{"Azure Cosmos DB", "", []string{"x-ms-retry-after-ms: 100"}, 100 * time.Millisecond},
		{"Azure OpenAI", "", []string{"retry-after-ms: 44783", "retry-after: 45"},
			45 * time.Second},
		{"Azure OpenAI, three fields", "", []string{"retry-after-ms: 1500",
			"x-ms-retry-after-ms: 1500", "retry-after: 1"}, 1500 * time.Millisecond},
		{"OpenAI", "", []string{"retry-after-ms: 17.5"}, 17500 * time.Microsecond},
		{"a simulator of Azure OpenAI", "", []string{"retry-after: -43"}, unread},
		{"opencode #41424", "", []string{"retry-after-ms: -1", "retry-after: -1"}, unread},
		{"GitHub", "", []string{"retry-after: 60"}, time.Minute},
		{"Slack", "", []string{"Retry-After: 30"}, 30 * time.Second},
		{"Zendesk", "", []string{"Retry-After: 93"}, 93 * time.Second},
		{"Discord", "", []string{"Retry-After: 65"}, 65 * time.Second},
		{"Discord v6, which means milliseconds", "", []string{"Retry-After: 6457"},
			6457 * time.Second},
		{"Cloudflare 1015", "", []string{"Retry-After: 30"}, 30 * time.Second},
		{"Groq", "", []string{"retry-after: 2"}, 2 * time.Second},
		{"lemlist", "", []string{"Retry-After: 2"}, 2 * time.Second},
		{"redis-cell #48", "", []string{"X-Ratelimit-Reset: 36", "Retry-After: 0"}, 0},
		{"httpstat.us, twice", "", []string{"Retry-After: 5", "Retry-After: 30"},
			30 * time.Second},
		{"RFC 9110", "", []string{"Retry-After: 120"}, 2 * time.Minute},
		{"RFC 9110, a date", "1999-12-31T23:59:00Z",
			[]string{"Retry-After: Fri, 31 Dec 1999 23:59:59 GMT"}, 59 * time.Second},
		{"RFC 850", "1994-11-06T08:49:00Z",
			[]string{"Retry-After: Sunday, 06-Nov-94 08:49:37 GMT"}, 37 * time.Second},
		{"asctime", "1994-11-06T08:49:00Z",
			[]string{"Retry-After: Sun Nov  6 08:49:37 1994"}, 37 * time.Second},
		{"MDN", "2015-10-21T07:27:00Z", []string{"Retry-After: Wed, 21 Oct 2015 07:28:00 GMT"},
			time.Minute},
		{"a router of models", "2026-07-25T12:00:00Z",
			[]string{"retry-after: Sat, 25 Jul 2026 12:05:00 GMT"}, 5 * time.Minute},
		{"Guard Cloud", "2026-06-25T10:00:00Z",
			[]string{"Retry-After: 2026-06-25T10:00:07.25+00:00"}, 7250 * time.Millisecond},
	} {
		now := noon
		if tt.now != "" {
			now = at(tt.now)
		}
		if got := waitOf(fields(tt.lines...), now); got != tt.want {
			t.Errorf("%s, %q: %v, want %v", tt.service, tt.lines, got, tt.want)
		}
	}
}

// TestRealReset reads when a quota is renewed, as services have sent or documented it.
func TestRealReset(t *testing.T) {
	for _, tt := range []struct {
		service, now, field string
		want                time.Duration
	}{
		{"GitHub", "2023-08-09T14:29:23Z", "x-ratelimit-reset: 1691591363", 0},
		{"GitLab", "2021-01-05T10:59:00Z", "RateLimit-Reset: 1609844400", time.Minute},
		{"Docker Hub", "2025-05-01T22:02:00Z", "x-ratelimit-reset: 1746136938", 18 * time.Second},
		{"Discord", "2016-08-02T21:22:43Z", "X-RateLimit-Reset: 1470173023.123",
			60123 * time.Millisecond},
		{"Discord", "", "X-RateLimit-Reset-After: 64.57", 64570 * time.Millisecond},
		{"express-rate-limit", "2021-05-04T05:22:00Z", "X-RateLimit-Reset: 1620105727",
			7 * time.Second},
		{"Unipile", "", "x-ratelimit-reset: 24", 24 * time.Second},
		{"throttled #55", "", "X-Ratelimit-Reset: 6", 6 * time.Second},
		{"Reddit", "", "x-ratelimit-reset: 204", 204 * time.Second},
		{"Atlassian", "2021-05-10T10:00:00Z", "X-RateLimit-Reset: 2021-05-10T11:00Z", time.Hour},
		{"lemlist", "2021-02-16T08:02:00Z", "X-RateLimit-Reset: " +
			"Tue Feb 16 2021 09:02:42 GMT+0100 (Central European Standard Time)",
			42 * time.Second},
		{"OpenAI", "", "x-ratelimit-reset-requests: 1s", time.Second},
		{"OpenAI", "", "x-ratelimit-reset-tokens: 6m0s", 6 * time.Minute},
		{"OpenAI", "", "x-ratelimit-reset-requests: 8.64s", 8640 * time.Millisecond},
		{"OpenAI", "", "x-ratelimit-reset-tokens: 17ms", 17 * time.Millisecond},
		{"Groq", "", "x-ratelimit-reset-requests: 2m59.56s", 179560 * time.Millisecond},
		{"Groq", "", "x-ratelimit-reset-tokens: 7.66s", 7660 * time.Millisecond},
		{"a simulator of Azure OpenAI", "", "x-ratelimit-reset-requests: -43", 0},
		{"Anthropic", "2024-01-15T10:29:58Z",
			"anthropic-ratelimit-requests-reset: 2024-01-15T10:30:00Z", 2 * time.Second},
		{"Anthropic", "2024-01-15T10:29:58Z",
			"anthropic-ratelimit-tokens-reset: 2024-01-15T10:30:00.250Z", 2250 * time.Millisecond},
	} {
		now := noon
		if tt.now != "" {
			now = at(tt.now)
		}
		name, _, _ := strings.Cut(tt.field, ": ")
		remaining := strings.NewReplacer("-Reset-After", "-Remaining", "-reset", "-remaining",
			"-Reset", "-Remaining").Replace(name)
		got := headers.Parse(fields(tt.field, remaining+": 0"), now)
		if len(got) != 1 || got[0].Reset != tt.want {
			t.Errorf("%s, %q: %+v, want %v", tt.service, tt.field, got, tt.want)
		}
	}
	// Docker Hub does not say when its quota is renewed.
	got := headers.Parse(fields("ratelimit-limit: 100;w=21600", "ratelimit-remaining: 76;w=21600"),
		noon)
	want := headers.Quota{Limit: 100, Window: 6 * time.Hour, Remaining: 76}
	if len(got) != 1 || got[0] != want {
		t.Errorf("Docker Hub: %+v, want %+v", got, want)
	}
}

// TestRetryAfterForms: each form of a value, and its bounds. Times are compared with noon, Monday
// 23 November 2026, 1795435200 since the epoch.
func TestRetryAfterForms(t *testing.T) {
	const forever = time.Duration(math.MaxInt64)
	for value, want := range map[string]time.Duration{
		"7":                                 7 * time.Second,
		"  7\t":                             7 * time.Second,
		`"7"`:                               7 * time.Second,
		"'7'":                               7 * time.Second,
		"+7":                                7 * time.Second,
		"007":                               7 * time.Second,
		"7.":                                7 * time.Second,
		".5":                                time.Second / 2,
		"7;comment=x":                       7 * time.Second,
		"0":                                 0,
		"0.0000000001":                      1,
		"299.9999999999":                    300 * time.Second,
		"5e-05":                             50 * time.Microsecond,
		"1.5E2":                             150 * time.Second,
		"1e9":                               1e9 * time.Second,
		"1e400":                             forever,
		"31622400":                          366 * 24 * time.Hour,
		"31622401":                          31622401 * time.Second,
		"99999999999":                       forever,
		"99999999999999999999":              forever,
		"9223372035":                        9223372035 * time.Second,
		"9223372036":                        forever,
		strings.Repeat("9", 128):            forever,
		strings.Repeat("9", 129):            unread,
		"0." + strings.Repeat("9", 126):     time.Second,
		"1795435230":                        30 * time.Second,
		"1795435230.25":                     30250 * time.Millisecond,
		"1795435230250":                     30250 * time.Millisecond,
		"1795435230250000":                  30250 * time.Millisecond,
		"1795435230250000001":               30250*time.Millisecond + 1,
		"1795435199":                        0,
		"120s":                              2 * time.Minute,
		"120 s":                             2 * time.Minute,
		"2 seconds":                         2 * time.Second,
		"1 Second":                          time.Second,
		"1m30s":                             90 * time.Second,
		"1 minute 30 seconds":               90 * time.Second,
		"1h":                                time.Hour,
		"2 hrs":                             2 * time.Hour,
		"1d2h":                              26 * time.Hour,
		"500ms":                             time.Second / 2,
		"0.5 min":                           30 * time.Second,
		"PT30S":                             30 * time.Second,
		"PT1M30S":                           90 * time.Second,
		"99999999h99999999d":                forever,
		"Mon, 23 Nov 2026 12:00:30 GMT":     30 * time.Second,
		"mon, 23 nov 2026 12:00:30 gmt":     30 * time.Second,
		"Fri, 23 Nov 2026 12:00:30 GMT":     30 * time.Second,
		"23 Nov 2026 12:00:30 GMT":          30 * time.Second,
		"Tue, 1 Dec 2026 12:00:00 GMT":      8 * 24 * time.Hour,
		"Mon, 23 Nov 2026 12:00:30 UTC":     30 * time.Second,
		"Mon, 23 Nov 2026 12:00:30 +0000":   30 * time.Second,
		"Mon, 23 Nov 2026 12:00:30 -0000":   30 * time.Second,
		"Mon, 23 Nov 2026 13:00:30 +0100":   30 * time.Second,
		"Mon, 23 Nov 2026 12:00:30":         30 * time.Second,
		"Mon, 23 Nov 26 12:00:30 GMT":       30 * time.Second,
		"Mon, 23-Nov-2026 12:00:30 GMT":     30 * time.Second,
		"Monday, 23-Nov-26 12:00:30 GMT":    30 * time.Second,
		"Mon Nov 23 12:00:30 2026":          30 * time.Second,
		"Mon Nov 23 12:00:30 UTC 2026":      30 * time.Second,
		"2026-11-23T12:00:30Z":              30 * time.Second,
		"2026-11-23t12:00:30z":              30 * time.Second,
		"2026-11-23T07:00:30-05:00":         30 * time.Second,
		"2026-11-23T12:00:30+0000":          30 * time.Second,
		"2026-11-23T12:00:30":               30 * time.Second,
		"2026-11-23 12:00:30":               30 * time.Second,
		"2026-11-23 12:00:30 UTC":           30 * time.Second,
		"2026-11-23 12:00:30.5 +0000 UTC":   30500 * time.Millisecond,
		"2026-11-23T12:01Z":                 time.Minute,
		"Mon, 23 Nov 2026 11:59:59 GMT":     0,
		"7, 9, 8":                           9 * time.Second,
		"soon, 5":                           5 * time.Second,
		"Mon, 23 Nov 2026 12:00:30 GMT, 40": 40 * time.Second,
		"Mon, 23 Nov 2026 12:00:30 GMT, 7":  30 * time.Second,
		"9999-12-31T23:59:59Z":              forever,
		"":                                  unread,
		" ":                                 unread,
		"-7":                                unread,
		"-7s":                               unread,
		"--7":                               unread,
		"+-7":                               unread,
		"NaN":                               unread,
		"Inf":                               unread,
		"+Infinity":                         unread,
		"null":                              unread,
		"undefined":                         unread,
		"soon":                              unread,
		".":                                 unread,
		"1.2.3":                             unread,
		"1e":                                unread,
		"1_000":                             unread,
		"0x10":                              unread,
		"7 parsecs":                         unread,
		"1m30":                              unread,
		"PT":                                unread,
		"Mon, 31 Feb 2026 12:00:30 GMT":     unread,
		"Mon, 23 Nov 2026 12:00:30 PST":     unread, // not UTC, and names of zones are ambiguous
	} {
		if got := waitOf(http.Header{"Retry-After": {value}}, noon); got != want {
			t.Errorf("%q: %v, want %v", value, got, want)
		}
	}
	// A field of milliseconds has the same forms.
	for value, want := range map[string]time.Duration{
		"503": 503 * time.Millisecond, "0.5": time.Millisecond / 2, "2s": 2 * time.Second,
		"1795435230250": 30250 * time.Millisecond, "31622400001": 31622400001 * time.Millisecond,
	} {
		if got := waitOf(http.Header{"Retry-After-Ms": {value}}, noon); got != want {
			t.Errorf("%q ms: %v, want %v", value, got, want)
		}
	}
}

// TestRetryAfterDate: times are compared with the Date of the answer, unless it cannot be right.
func TestRetryAfterDate(t *testing.T) {
	for _, value := range []string{"1795435230", "Mon, 23 Nov 2026 12:00:30 GMT",
		"2026-11-23T12:00:30Z"} {
		for date, want := range map[string]time.Duration{
			"":                              30 * time.Second,
			"soon":                          30 * time.Second,
			"Mon, 23 Nov 2026 12:00:10 GMT": 20 * time.Second,
			"Mon, 23 Nov 2026 06:00:30 GMT": 6 * time.Hour,
			"Thu, 01 Jan 1970 00:00:00 GMT": 30 * time.Second,
			"Fri, 01 Jan 2100 00:00:00 GMT": 30 * time.Second,
		} {
			h := http.Header{"Retry-After": {value}, "Date": {date}}
			if got := waitOf(h, noon); got != want {
				t.Errorf("%q on %q: %v, want %v", value, date, got, want)
			}
		}
	}
}

// FuzzRetryAfter: no value makes RetryAfter panic or return a negative wait, a number of seconds is
// never cut short, and a second value never shortens the wait.
func FuzzRetryAfter(f *testing.F) {
	for _, seed := range []string{"7", "2.0", "1795435230250", "5e-05", "1m30s", "PT1M30S",
		"Tue Feb 16 2021 09:02:42 GMT+0100 (Central European Standard Time)",
		"2026-11-23 12:00:30.5 +0000 UTC", "Sunday, 06-Nov-94 08:49:37 GMT", "7, soon, 9",
		"9223372036.999999999", "99999999h99999999d", "1e400", "\"+.5\";w=1",
		"9999-12-31T23:59:59Z",
	} {
		f.Add(seed, "7")
	}
	f.Fuzz(func(t *testing.T, one, two string) {
		for _, field := range []string{"Retry-After", "Retry-After-Ms"} {
			first := waitOf(http.Header{field: {one}}, noon)
			both := waitOf(http.Header{field: {one, two}, "Date": {two}}, noon)
			if first < unread || both < unread {
				t.Errorf("%q: %v; and %q: %v", one, first, two, both)
			}
			if alone := waitOf(http.Header{field: {one, two}}, noon); alone < first {
				t.Errorf("%q: %v; and %q: %v", one, first, two, alone)
			}
		}
	})
}
