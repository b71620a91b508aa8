package httpapi

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"strings"
	"testing"
)

// TestForwardedDescriptor: what a proxy says of a request becomes entries; the address is only
// believed of trusted proxies, and a path is as it was sent.
func TestForwardedDescriptor(t *testing.T) {
	proxy := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	entries := []EntryFlag{{"tenant", "X-Tenant"}, {"key", "client"}}
	for _, tt := range []struct {
		name, peer string
		header     http.Header
		want       string
	}{
		{"nothing but a peer", "192.0.2.1:1234", nil,
			"client=192.0.2.1 key=192.0.2.1"},
		{"a proxy", "10.0.0.7:1234", http.Header{
			"X-Forwarded-For": {"203.0.113.9, 198.51.100.3"}, "X-Forwarded-Method": {"post"},
			"X-Forwarded-Host": {"API.example.:8080"}, "X-Forwarded-Uri": {"//v1/%63hat?stream=1"},
			"X-Tenant": {"acme"}},
			"client=198.51.100.3 method=POST host=api.example path=//v1/%63hat tenant=acme " +
				"key=198.51.100.3"},
		{"a peer that is no proxy", "192.0.2.1:1234",
			http.Header{"X-Forwarded-For": {"203.0.113.9"}},
			"client=192.0.2.1 key=192.0.2.1"},
		{"a header twice", "192.0.2.1:1234", http.Header{"X-Tenant": {"acme", "other"}},
			"client=192.0.2.1 tenant=acme, other key=192.0.2.1"},
	} {
		r := httptest.NewRequest(http.MethodGet, "/v1/check", nil)
		r.RemoteAddr = tt.peer
		for name, values := range tt.header {
			r.Header[name] = values
		}
		var got []string
		f := NewForwardAuth("caddy", entries, proxy, discard)
		described, err := f.descriptor(r, func(string) bool { return true })
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range described {
			got = append(got, e.Name+"="+e.Value)
		}
		if d := strings.Join(got, " "); d != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, d, tt.want)
		}
	}
}

// TestCheck: a proxy gets 200 until the limit is reached, and then the refusal that it asks for,
// whatever the method of its request and with a browser's headers in it.
func TestCheck(t *testing.T) {
	s := fileScene(t, `
limits:
  - {name: chat, when: {path: /v1/chat*}, key: [client], max: 1/1m}
  - {name: tried, key: [client], max: 1/1m, mode: shadow}
  - {name: banned, when: {path: /banned}, max: 0}
  - {name: calls, key: [client], algorithm: in-flight, max: 1}
`)
	ask := func(method, target, query string) (int, http.Header, string) {
		r := httptest.NewRequest(method, "/v1/check"+query, nil)
		r.Header.Set("X-Forwarded-Uri", target)
		r.Header.Set("Origin", "https://elsewhere.example")
		r.Header.Set("Sec-Fetch-Site", "cross-site")
		return call(t, s.api, r)
	}
	for _, tt := range []struct {
		method, target, query string
		status                int
		fields                string // RateLimit
		retry                 string
	}{
		{"GET", "/other", "", 200, "", ""},
		{"POST", "/v1/chat", "", 200, `"chat";r=0;t=60`, ""},
		{"POST", "/v1/chat/more", "", 429, `"chat";r=0;t=60`, "60"},
		{"GET", "/v1/chat", "?refused=403", 403, `"chat";r=0;t=60`, "60"},
		{"GET", "/v1/chat", "?refused=401", 401, `"chat";r=0;t=60`, "60"},
		{"GET", "/v1/chat", "?refused=200", 400, "", ""},
		{"GET", "/banned", "", 429, "", ""},
	} {
		status, header, body := ask(tt.method, tt.target, tt.query)
		if status != tt.status || header.Get("RateLimit") != tt.fields ||
			header.Get("Retry-After") != tt.retry {
			t.Errorf("%s %s%s: %d %v %s, want %+v",
				tt.method, tt.target, tt.query, status, header, body, tt)
		}
	}
}

// TestCheckSpellings: a path is limited however it is written, under each name that it has, and
// what explains a path says the same.
func TestCheckSpellings(t *testing.T) {
	const limits = `
limits:
  - {name: api, when: {path: /api/*}, max: 2/1h}
  - {name: route, when: {route: /api/*}, key: [route], max: 2/1h}
  - {name: most, max: 1000/1h, except: [{when: {path: /free/*}, max: unlimited}]}
`
	for _, target := range []string{
		"/api/..%2fx", "/x/..%2fapi/", "/x/../api/", "/free/%2e%2e/api/", "/free/..;/api/",
		`/free\..\api/`, "//h/api/", "/%61pi/?q", "/free/..%252fapi/",
	} {
		s := fileScene(t, limits)
		s.api.proxies = NewForwardAuth("caddy", []EntryFlag{{"route", "path"}}, nil, discard)
		for i, want := range []int{200, 200, 429} {
			r := httptest.NewRequest(http.MethodGet, "/v1/check", nil)
			r.Header.Set("X-Forwarded-Uri", target)
			status, header, body := call(t, s.api, r)
			fields := header.Get("RateLimit")
			if status != want || !strings.Contains(fields, `"api";r=`) ||
				!strings.Contains(fields, `"route";r=`) || !strings.Contains(fields, `"most";r=`) {
				t.Errorf("%q, request %d: %d %s %s, want %d",
					target, i+1, status, fields, body, want)
			}
		}
		path, _, _ := strings.Cut(target, "?")
		text, err := json.Marshal(map[string]any{"descriptor": map[string]string{"path": path}})
		if err != nil {
			t.Fatal(err)
		}
		_, _, answer := s.post("/v1/explain", string(text))
		got := make(map[string]any)
		for _, a := range answer["applies"].([]any) {
			applied := a.(map[string]any)
			got[applied["limit"].(string)] = applied["state"].(map[string]any)["remaining"]
		}
		if want := map[string]any{"api": 0.0, "most": 998.0}; !reflect.DeepEqual(got, want) {
			t.Errorf("%q is explained by %v, want %v", target, got, want)
		}
	}
}
