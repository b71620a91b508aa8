package rules

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/paths"
)

// TestPathReadings: a limit is for all spellings of a path, and a higher rate only for those that
// every server reads so.
func TestPathReadings(t *testing.T) {
	perMinute := func(n int64) Rate { return Rate{Units: n, Window: time.Minute} }
	unlimited := Rate{Unlimited: true}
	path := func(pattern string) []Condition {
		text, prefix := strings.CutSuffix(pattern, "*")
		return []Condition{{Entry: "path", Pattern: text, Prefix: prefix}}
	}
	limits := []*Limit{
		{Name: "all", Key: []string{"path"}, Rate: perMinute(9), Except: []Exception{
			{When: path("/free*"), Rate: unlimited},
			{When: path("/login"), Rate: perMinute(2)},
		}},
		{Name: "api", When: path("/api/*"), Rate: perMinute(3)},
		{Name: "x", When: path("/x*"), Rate: perMinute(4)},
		{Name: "scoped", When: path("/npm/@s%2fn"), Rate: perMinute(5)},
		{Name: "plans", When: path("/p*"), Rate: perMinute(6), By: &Plans{Entry: "path",
			Rates: map[string]Rate{"/p1": perMinute(60), "/p2": perMinute(1), "/p 3": unlimited}}},
		{Name: "route", When: []Condition{starts("route", "/r")}, Rate: perMinute(7)},
	}
	s := compile(t, limits, nil)
	if !paths.Read(tooMany).Open {
		t.Fatal("all readings of a hostile path are looked at")
	}
	for sent, want := range map[string]string{
		"/":        "all=9 %2F",
		"/free/a":  "all=unlimited %2Ffree%2Fa",
		"/login":   "all=2 %2Flogin",
		"/%6cogin": "all=2 %2Flogin",
		"/api/a":   "all=9 %2Fapi%2Fa, api=3",

		"/api/..%2fx":            "all=9 %2Fx, api=3, x=4",
		"/x/../api/":             "all=9 %2Fapi%2F, api=3, x=4",
		"/free/../api/a":         "all=9 %2Fapi%2Fa, api=3",
		"/free%2f..%2flogin":     "all=2 %2Flogin",
		"/%66ree/a":              "all=9 %2Ffree%2Fa",
		"/free/%C3%BC%20":        "all=unlimited %2Ffree%2Fü ",
		"/free//a%2fb;c":         "all=unlimited %2Ffree%2Fa%2Fb",
		"//host/api/a":           "all=9 %2Fhost%2Fapi%2Fa, api=3",
		`/free\..\api/a`:         "all=9 %2Fapi%2Fa, api=3",
		"/free/..;v=1/api/a":     "all=9 %2Fapi%2Fa, api=3",
		"/free/%252e%252e/api/a": "all=9 %2Fapi%2Fa, api=3",

		"/npm/@s%2fn": "all=9 %2Fnpm%2F@s%2Fn, scoped=5",
		"/npm/@s%2Fn": "all=9 %2Fnpm%2F@s%2Fn, scoped=5",
		"/npm/@s/n":   "all=9 %2Fnpm%2F@s%2Fn",

		"/p1":       "all=9 %2Fp1, plans=60",
		"/%701":     "all=9 %2Fp1, plans=6",
		"/%702":     "all=9 %2Fp2, plans=1",
		"/p1/../p2": "all=9 %2Fp2, plans=1",
		"/p%203":    "all=9 %2Fp 3, plans=unlimited",

		tooMany: "all=2 " + Key(paths.Read(tooMany).Key) +
			", api=3, x=4, scoped=5, plans=1",
	} {
		for _, route := range []bool{false, true} {
			d, want := entries("path", sent), want
			if route {
				d = append(d, Entry{Name: "route", Value: "/x/../r",
					Path: true})
				want += ", route=7"
			}
			var got []string
			for _, m := range s.Match(nil, "", d) {
				text := fmt.Sprintf("%s=%d", m.Limit.Name, m.Rate.Units)
				if m.Rate.Unlimited {
					text = m.Limit.Name + "=unlimited"
				}
				if len(m.Limit.Key) > 0 {
					text += " " + m.Key
				}
				got = append(got, text)
				if m.Limit.Mismatch("", d) != "" {
					t.Errorf("%q: %s applies, and says %s", sent, text, m.Limit.Mismatch("", d))
				}
			}
			if got := strings.Join(got, ", "); got != want {
				t.Errorf("%q: got\n%s, want\n%s", sent, got, want)
			}
		}
	}
}

// TestLess: the lower of two rates is that with fewer units in the long run.
func TestLess(t *testing.T) {
	rates := []Rate{ // ascending
		{}, {Units: 1, Window: time.Hour}, {Units: 100, Window: time.Hour},
		{Units: 10, Window: time.Second}, {Units: 100, Window: 10 * time.Second},
		{Units: 1 << 40, Window: time.Millisecond}, {Unlimited: true},
	}
	for i, a := range rates {
		for j, b := range rates {
			if a.Less(b) != (i < j) {
				t.Errorf("%+v is less than %+v: %v", a, b, a.Less(b))
			}
		}
	}
	day, hour := Rate{Window: 24 * time.Hour}, Rate{Window: time.Hour} // of blocks
	if !day.Less(hour) || hour.Less(day) {
		t.Error("the shorter block is less")
	}
	if few, many := (Rate{Units: 1}), (Rate{Units: 2}); !few.Less(many) || many.Less(few) {
		t.Error("2 calls in flight are less than 1")
	}
}
