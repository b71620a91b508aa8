package httpapi

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"

	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/cmd/ratelimit/audit"
	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
)

const fuzzedLimits = `
limits:
  - {name: tenants, when: {tenant: "*"}, key: [tenant], max: 100/1m, holds: 1m}
  - {name: plans, when: {tenant: "*"}, key: [tenant, path], max: 5/1m, by: {entry: plan, pro: 9/1m}}
  - {name: paths, when: {path: /v1/*}, key: [client], max: 3/1m}
  - {name: calls, when: {call: "*"}, key: [call], max: 2, algorithm: in-flight, holds: 10m}
  - {name: keys, key: [key], max: 3/1m, mode: shadow}
  - {name: none, when: {path: /banned}, max: 0}
`

// A hostile client has an API with fuzzedLimits for itself, and its log.
type hostile struct {
	testing.TB
	api   *API
	log   apitest.Log
	store *memorystore.Store
	sent  int
}

func newHostile(f *testing.F) *hostile {
	h := &hostile{TB: f}
	f.Cleanup(func() {
		if h.store != nil {
			_ = h.store.Close()
		}
	})
	return h
}

// renew gives h another API now and then, so that the keys of the fuzzer do not fill the store.
func (h *hostile) renew(t *testing.T) {
	const requests = 1000
	if h.sent++; h.sent%requests != 1 {
		return
	}
	if h.store != nil {
		_ = h.store.Close()
	}
	var err error
	if h.store, err = memorystore.New(nil); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewJSONHandler(&h.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	h.api = fileAPI(t, fuzzedLimits, h.store)
	h.api.log, h.api.audit.Trail = log, audit.New(log, audit.Options{})
	h.api.proxies = NewForwardAuth("caddy", []EntryFlag{{"tenant", "X-Tenant"}, {"plan", "X-Plan"}},
		[]netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, log)
}

// send sends a request with a token, and checks what is true of every answer. It returns the body.
func (h *hostile) send(t *testing.T, r *http.Request, statuses ...int) (int, []byte) {
	t.Helper()
	h.renew(t)
	r.Header.Set("Authorization", "Bearer "+secret)
	w := httptest.NewRecorder()
	h.api.ServeHTTP(w, r)
	status, body := w.Code, w.Body.Bytes()
	if !slices.Contains(statuses, status) {
		t.Fatalf("%d %s, want one of %v", status, body, statuses)
	}
	if !json.Valid(body) {
		t.Fatalf("%d %q is not JSON", status, body)
	}
	if w.Header().Get("Content-Type") == "application/problem+json" {
		checkWellFormed(t, status, body)
	}
	for name, values := range w.Header() {
		for _, v := range values {
			if strings.ContainsFunc(v, func(c rune) bool { return c < ' ' || c > '~' }) {
				t.Fatalf("%s: %q", name, v)
			}
		}
	}
	if log := h.log.String(); strings.Contains(log, secret) {
		t.Fatalf("the key or the token is in the log: %s", log)
	}
	return status, body
}

func checkWellFormed(t *testing.T, status int, body []byte) {
	t.Helper()
	var p struct {
		Type, Title, Detail string
		Status              int
	}
	if err := json.Unmarshal(body, &p); err != nil || p.Status != status || p.Title == "" ||
		p.Detail == "" || strings.Contains(string(body), secret) {
		t.Fatalf("%d with the problem %s", status, body)
	}
}

// fuzzedBodies are seeds of requests with a descriptor.
var fuzzedBodies = []string{
	`{"descriptor":{"tenant":"secret-key","path":"/v1/chat","plan":"pro"},"n":5}`,
	`{"descriptor":{"call":"secret-key"},"hold_ms":0}`, `{"descriptor":{}}`, `{"key":"secret-key"}`,
	`{"descriptors":[{"entries":{"tenant":"a"},"n":7},{"entries":{"tenant":"a"}}],"hold_ms":60000}`,
	`{"descriptor":{"tenant":"\ud800"}}`, "{\"descriptor\":{\"tenant\":\"\xff\"}}", `{`, `[]`, ``,
	`{"descriptor":{"tenant":"a","tenant":"b"}}`, `{"descriptor":{"a":{"b":{}}}}`, `nul`, `{}{}`,
	`{"descriptor":{"tenant":"` + strings.Repeat("secret-key", 200) + `"}}`,
	`{"descriptor":{"tenant":"a"},"n":9223372036854775808}`, `{"descriptor":null,"n":-0}`,
	`{"descriptor":{"tenant":"a/b%2F\u0000\n"},"n":0,"wait_ms":0,"hold_ms":1e3}`,
	`{"descriptor":{"call":"a"},"wait_ms":5000,"hold_ms":0,"n":2}`,
	`{"domain":"secret-key","descriptor":{"tenant":"secret-key"}}`,
}

// FuzzDecideDescriptors: whatever the body, a request gets a decision or a problem.
func FuzzDecideDescriptors(f *testing.F) {
	for _, body := range fuzzedBodies {
		f.Add([]byte(body))
	}
	h := newHostile(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		gone, cancel := context.WithCancel(t.Context())
		cancel() // for a client that has gone, nothing waits
		r := httptest.NewRequestWithContext(gone, http.MethodPost, "/v1/decide",
			strings.NewReader(string(body)))
		status, answer := h.send(t, r, 200, 429, 400, 413, 422)
		if status != http.StatusOK && status != http.StatusTooManyRequests {
			return
		}
		var decided struct {
			Allowed *bool
			Limits  []struct{ Name string }
		}
		err := json.Unmarshal(answer, &decided)
		if err != nil || decided.Allowed == nil || *decided.Allowed != (status == 200) {
			t.Fatalf("%s: %d %s", body, status, answer)
		}
	})
}

// FuzzExplain: whatever the body, a request gets an explanation or a problem.
func FuzzExplain(f *testing.F) {
	for _, body := range fuzzedBodies {
		f.Add([]byte(body))
	}
	h := newHostile(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		r := httptest.NewRequest(http.MethodPost, "/v1/explain", strings.NewReader(string(body)))
		status, answer := h.send(t, r, 200, 400, 413)
		var explained struct {
			Applies, Others []struct{ Limit string }
		}
		if err := json.Unmarshal(answer, &explained); err != nil ||
			status == 200 && len(explained.Applies)+len(explained.Others) < 6 {
			t.Fatalf("%s: %v, %d %s", body, err, status, answer)
		}
	})
}

// FuzzCheck: whatever clients send through a proxy, it gets a decision or a problem, and a target
// has a path.
func FuzzCheck(f *testing.F) {
	for _, s := range [][6]string{
		{"/v1/chat?q", "203.0.113.9, 198.51.100.3", "API.example:80", "POST", secret, ""},
		{"//v1/%63hat/../x", "unknown, [::1]:80, ,", "[::1]:80", "\x00", "a/b", "?refused=403"},
		{"/v1/chat%zz", "::ffff:1.2.3.4", "..", "GET", strings.Repeat(secret, 200), "?refused=401"},
		{"http://[/v1/", "\xff", "\xff", "", "\xff", "?refused=200"},
		{"*", "", "", "", "", "?refused=403&refused=429;&%"}, {"/banned", "", "", "", "", ""},
		{"../..", "", "", "", "", ""},
	} {
		f.Add(s[0], s[1], s[2], s[3], s[4], s[5])
	}
	h, ingress := newHostile(f), NewForwardAuth("ingress-nginx", nil, nil, discard)
	envoy := NewForwardAuth("envoy", nil, nil, discard)
	f.Fuzz(func(t *testing.T, target, forwarded, host, method, tenant, query string) {
		r := httptest.NewRequest(http.MethodGet, "/v1/check", nil)
		r.URL.RawQuery = strings.TrimPrefix(query, "?")
		r.RemoteAddr = "192.0.2.7:1234"
		r.Header = http.Header{"X-Forwarded-Uri": {target}, "X-Forwarded-For": {forwarded},
			"X-Forwarded-Host": {host}, "X-Forwarded-Method": {method}, "X-Tenant": {tenant},
			"X-Plan": {"pro"}}
		h.send(t, r, 200, 429, 401, 403, 400, 422)
		descriptor, err := h.api.proxies.descriptor(r, func(string) bool { return true })
		if err != nil {
			t.Fatal(err)
		}
		path, _ := descriptor.Value("path")
		if before, _, _ := strings.Cut(target, "?"); before != "" && path == "" {
			t.Fatalf("%q has no path", target)
		}
		if path != "" && path != "*" && path[0] != '/' {
			t.Fatalf("%q has the path %q", target, path)
		}
		if !strings.HasPrefix(target, "/") || strings.Contains(host, "/") {
			return // nginx refuses it
		}
		r.Header.Set("X-Original-URL", "https://"+host+target)
		descriptor, err = ingress.descriptor(r, func(string) bool { return true })
		if same, _ := descriptor.Value("path"); err == nil && same != path {
			t.Fatalf("%q and %q have the path %q, want %q", host, target, same, path)
		}
		r.RequestURI, r.Host = CheckPath+target, host
		descriptor, err = envoy.descriptor(r, func(string) bool { return true })
		if same, _ := descriptor.Value("path"); strings.HasPrefix(target, "/") &&
			(err != nil || same != path) {
			t.Fatalf("%q below /v1/check has the path %q, want %q: %v", target, same, path, err)
		}
	})
}
