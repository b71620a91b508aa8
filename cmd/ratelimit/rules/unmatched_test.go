package rules

import (
	"net/netip"
	"strings"
	"testing"
)

// TestUnmatched: what no request at /v1/check has is found, with what to write.
func TestUnmatched(t *testing.T) {
	higher, lower := Rate{Units: 2}, Rate{}
	for _, tt := range []struct {
		entry, pattern string
		want           string // what to write
	}{
		{"client", "192.0.2.7", ""}, {"client", "*", ""}, {"client", "10.*", ""},
		{"client", "mobile-app", ""}, {"client", "unknown", ""}, {"client", "2001:db8::/64", ""},
		{"client", "2001:db8::7", "2001:db8::/64"}, {"client", "192.0.2.7:80", "192.0.2.7"},
		{"client", "[2001:db8::7]:80", "2001:db8::/64"},
		{"client", "[2001:db8::7]", "2001:db8::/64"},
		{"client", "::ffff:192.0.2.7", "192.0.2.7"}, {"client", "10.0.0", "192.0.2.7"},
		{"client", "10.0.0.1-10.0.0.9", "192.0.2.7"}, {"client", "2001:DB8:*", "2001:db8:*"},
		{"client", "2001:0db8:*", "2001:db8:*"}, {"client", "2001:db8:0000:07*",
			"2001:db8:0:07*"}, {"client", "2001:db8::*", ""}, {"client", "2001:0*", ""},
		{"client", "10.0.0.1, 10.0.0.2", "192.0.2.7"}, {"client", "010.0.0.1", "192.0.2.7"},

		{"method", "GET", ""}, {"method", "P*", ""}, {"method", "M-SEARCH", ""},
		{"method", "get", "GET"}, {"method", "Post*", "POST*"},
		{"method", "GET,POST", "one method"},

		{"host", "api.example.com", ""}, {"host", "api.*", ""}, {"host", "::1", ""},
		{"host", "API.example.com", "api.example.com"},
		{"host", "api.example.com:8080", "api.example.com"},
		{"host", "api.example.com.", "api.example.com"}, {"host", "[::1]:80", "::1"},
		{"host", "https://api.example.com/x", "api.example.com"}, {"host", "api.example.com:*",
			"api.example.com*"}, {"host", "münchen.example", "xn--"},

		{"path", "/v1/chat", ""}, {"path", "/", ""}, {"path", "/v1/*", ""}, {"path", "/.*", ""},
		{"path", "/a/..*", ""}, {"path", "*", ""}, {"path", "/v1/mein büro", ""},
		{"path", "/%*", ""},
		{"path", "v1/*", "/v1/*"}, {"path", "https://example.com/v1", "/v1"}, {"path", "", "/"},
		{"host", "", "left out"},
		{"path", "/search?q=*", "/search*"}, {"path", "/a%20b", "/a b"},
		{"path", "/v1//x*", "/v1/x*"},
		{"path", "/v1/../x", "/x"}, {"path", "/v1/./*", "/v1/*"}, {"path", "/a;b", "/a"},
		{"path", `/a\b`, "/a/b"}, {"path", "/a#b", "/a"},

		{"tenant", "10.0.0.1:80", ""}, {"tenant", "a b/..", ""},
	} {
		pattern, prefix := strings.CutSuffix(tt.pattern, "*")
		c := Condition{Entry: tt.entry, Pattern: pattern, Prefix: prefix}
		at := Position{File: "f", Line: 3, Column: 1}
		plans := &Plans{Entry: tt.entry, At: at, Rates: map[string]Rate{pattern: higher}}
		for _, l := range []*Limit{
			{Name: "n", When: []Condition{c}, At: at},
			{Name: "n", Except: []Exception{{When: []Condition{c}, At: at, Rate: higher}}},
			{Name: "n", By: plans},
		} {
			if prefix && l.By != nil {
				continue
			}
			got := l.Unmatched()
			if tt.want == "" && len(got) == 0 {
				continue
			}
			if tt.want == "" || len(got) != 1 || got[0].At != at ||
				!strings.Contains(got[0].Text, tt.want) {
				t.Errorf("%s=%s: %v, want %q", tt.entry, tt.pattern, got, tt.want)
			}
		}
	}

	// Of a list, the first value that no request has.
	c := Condition{Entry: "client", Among: values([]element{{text: "10.", prefix: true},
		{text: "192.0.2.7:80"}, {network: netip.MustParsePrefix("2001:db8::/96")}}, "")}
	got := (&Limit{Name: "n", When: []Condition{c}}).Unmatched()
	if len(got) != 1 || !strings.Contains(got[0].Text, "for client=192.0.2.7:80, which") {
		t.Errorf("%v", got)
	}
	c.Among = values([]element{{network: netip.MustParsePrefix("2001:db8::/64")},
		{network: netip.MustParsePrefix("2001:db8:1::/65")}}, "")
	got = (&Limit{Name: "n", When: []Condition{c}}).Unmatched()
	if len(got) != 1 || !strings.HasSuffix(got[0].Text, "write 2001:db8:1::/64") {
		t.Errorf("%v", got)
	}

	// Escapes of slashes: of a limit and of a lower rate they match, of a higher one never.
	scoped := []Condition{equals("path", "/npm/@s%2fn")}
	l := &Limit{Name: "n", Rate: Rate{Units: 1}, When: scoped,
		Except: []Exception{{When: scoped, Rate: lower}, {When: scoped, Rate: higher}}}
	got = l.Unmatched()
	if len(got) != 1 || !strings.HasSuffix(got[0].Text, "write /npm/@s*") {
		t.Errorf("%v", got)
	}
}
