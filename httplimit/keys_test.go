package httplimit_test

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"testing"

	"github.com/truewindow/ratelimit/httplimit"
)

func TestKeys(t *testing.T) {
	type user struct{}
	type other int
	r := get()
	r.Header["X-Api-Key"] = []string{"k1"}
	r.Header["Two"] = []string{"a", "b"}
	r.Header["Empty"] = []string{""}
	r.AddCookie(&http.Cookie{Name: "session", Value: "s1"})
	r.AddCookie(&http.Cookie{Name: "empty"})
	r = r.WithContext(context.WithValue(r.Context(), user{}, "u/1"))
	r = r.WithContext(context.WithValue(r.Context(), other(1), netip.MustParseAddr("192.0.2.1")))
	r = r.WithContext(context.WithValue(r.Context(), other(2), 42))
	matched := r.Clone(r.Context())
	matched.Pattern = "GET /users/{id}"
	failing := func(*http.Request) (string, error) { return "", errors.New("x") }
	empty := func(*http.Request) (string, error) { return "", nil }
	for _, tt := range []struct {
		name string
		r    *http.Request
		key  httplimit.KeyFunc
		want string // empty: an error
	}{
		{"header", r, httplimit.Header("x-api-key"), "k1"},
		{"header, absent", r, httplimit.Header("Other"), ""},
		{"header, two lines", r, httplimit.Header("Two"), ""},
		{"header, empty", r, httplimit.Header("Empty"), ""},
		{"cookie", r, httplimit.Cookie("session"), "s1"},
		{"cookie, absent", r, httplimit.Cookie("other"), ""},
		{"cookie, empty", r, httplimit.Cookie("empty"), ""},
		{"route", matched, httplimit.Route, "GET /users/{id}"},
		{"route before the mux", r, httplimit.Route, ""},
		{"string in the context", r, httplimit.ContextValue(user{}), "u/1"},
		{"Stringer in the context", r, httplimit.ContextValue(other(1)), "192.0.2.1"},
		{"number in the context", r, httplimit.ContextValue(other(2)), ""},
		{"not in the context", r, httplimit.ContextValue(other(3)), ""},
		{"joined", matched, httplimit.Join(httplimit.ContextValue(user{}), httplimit.Route),
			"u%2F1/GET %2Fusers%2F{id}"},
		{"joined, error", r, httplimit.Join(secretKey, failing), ""},
		{"joined, empty", r, httplimit.Join(secretKey, empty), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.key(tt.r)
			if got != tt.want || (err != nil) != (tt.want == "") {
				t.Errorf("%q, %v; want %q", got, err, tt.want)
			}
		})
	}
}

// TestRoute: the form of a route does not depend on the router or on how a pattern is spelled, and
// clients cannot choose new routes.
func TestRoute(t *testing.T) {
	for _, tt := range []struct{ method, pattern, want string }{
		{"GET", "GET /users/{id}", "GET /users/{id}"},
		{"HEAD", "GET /users/{id}", "GET /users/{id}"},
		{"HEAD", "HEAD /x", "GET /x"},
		{"POST", "POST\t /x", "POST /x"},
		{"GET", "GET   /x/{$}", "GET /x/{$}"},
		{"DELETE", "DELETE example.com/a b/{path...}", "DELETE example.com/a b/{path...}"},
		{"PURGE", "PURGE /x", "PURGE /x"},
		{"POST", "example.com/x/", "POST example.com/x/"},
		{"POST", "/", "POST /"},
		{"POST", "/export", "POST /export"}, // chi, Echo
		{"DELETE", "/export", "DELETE /export"},
		{"HEAD", "/export", "GET /export"},
		{"", "/export", "GET /export"},
		{"PATCH", "/users/:id", "PATCH /users/:id"}, // Gin, Fiber
		{"PUT", "/a b", "PUT /a b"},
		{"OPTIONS", "*", "OPTIONS *"},
		{"FOO", "/x", "OTHER /x"},
		{"BAR", "/x", "OTHER /x"},
		{"get", "/x", "OTHER /x"},
	} {
		r := &http.Request{Method: tt.method, Pattern: tt.pattern}
		if got, err := httplimit.Route(r); got != tt.want || err != nil {
			t.Errorf("%s %q: %q, %v; want %q", tt.method, tt.pattern, got, err, tt.want)
		}
	}
}

// FuzzJoinKeys: different parts have different keys.
func FuzzJoinKeys(f *testing.F) {
	f.Add("a", "bc", "ab", "c")
	f.Add("a/b", "c", "a", "b/c")
	f.Add("a%2F", "b", "a/", "b")
	f.Add("", "/", "/", "")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		lists := [][]string{{a, b}, {c, d}, {a, b, c}, {b, c, d}, {a + b}, {a}, {c, ""}}
		for i, p := range lists {
			for _, q := range lists[:i] {
				if (len(p) > 1 || p[0] != "") && !slices.Equal(p, q) &&
					httplimit.JoinKeys(p...) == httplimit.JoinKeys(q...) {
					t.Fatalf("%q and %q have the key %q", p, q, httplimit.JoinKeys(p...))
				}
			}
		}
	})
}
