package rules

import (
	"strconv"
	"strings"
	"testing"
)

// TestNetworks: a network as the value of a client, with which no client is compared, is a problem
// that says what to write.
func TestNetworks(t *testing.T) {
	for value, want := range map[string]string{
		"10.0.0.0/8": "10.*", "10.1.0.0/16": "10.1.*", "192.0.2.0/24": "192.0.2.*",
		"10.1.2.3/32": "10.1.2.3", "10.1.2.3/8": "10.*", "10.1.16.0/20": "addresses such as",
		"10.0.0.0/33": "addresses such as", "10/8": "addresses such as",
		"10.0.0.0/255.0.0.0": "addresses such as", "10.0.0.0/8,192.0.2.0/24": "addresses such as",
		"10.0.0.0/*": "addresses such as", "0.0.0.0/0": "addresses such as",
		"::/0":          "addresses such as",
		"2001:db8::/32": "2001:db8:*", "2001:DB8:7::/48": "2001:db8:7:*",
		"2001::/32":       "addresses such",
		"[2001:db8::]/32": "2001:db8:*", "[2001:db8::7]/64": "2001:db8::/64",
		"2001:DB8::/64": "2001:db8::/64", "2001:db8::7/64": "2001:db8::/64",
		"2001:db8::7/128": "2001:db8::/64", "2001:db8::/56": "addresses such as",
		"::ffff:10.0.0.0/104": "addresses such as", "fe80::1%eth0/64": "fe80::/64",

		"2001:db8::/64": "", "2001:db8::/*": "", "acme/web": "", "/": "", "10.1.2.3": "", "*": "",
	} {
		for _, limit := range []string{
			"max: 1/m, when: {client: '" + value + "'}",
			"max: 1/m, except: [{when: {client: '" + value +
				"', a: b}, max: 2/m}]", "max: 1/m, by: {'" + value + "': 2/m, entry: client}",
		} {
			if strings.Contains(value, "*") && strings.Contains(limit, "by:") {
				continue // another problem
			}
			text := "limits: [{name: n, " + limit + "}]\n"
			got := problemsOf(t, text)
			if want == "" {
				compareLines(t, got, nil)
				continue
			}
			at := strings.Index(text, "'") + 1
			_, write, _ := strings.Cut(strings.Join(got, ""), "not with a network: write ")
			if len(got) != 1 || !strings.HasPrefix(write, want) ||
				!strings.HasPrefix(got[0], "1:"+strconv.Itoa(at)+": ") {
				t.Errorf("%s: %q, want %q in column %d", text, got, want, at)
			}
		}
	}
	compareLines(t, problemsOf(t, "limits: [{name: n, max: 1/m, when: {peer: 10.0.0.0/8}}]"), nil)
}

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
		c := Condition{tt.entry, pattern, prefix}
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

	// Escapes of slashes: of a limit and of a lower rate they match, of a higher one never.
	scoped := []Condition{{"path", "/npm/@s%2fn", false}}
	l := &Limit{Name: "n", Rate: Rate{Units: 1}, When: scoped,
		Except: []Exception{{When: scoped, Rate: lower}, {When: scoped, Rate: higher}}}
	if got := l.Unmatched(); len(got) != 1 || !strings.HasSuffix(got[0].Text, "write /npm/@s*") {
		t.Errorf("%v", got)
	}
}
