package caddylimit

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// BenchmarkHandler measures what the handler costs over the next one, on the store in memory.
func BenchmarkHandler(b *testing.B) {
	const many = "1000000000/1ms"
	next := caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error { return nil })
	user := []string{"{http.request.header.X-User}"}
	for _, bm := range []struct {
		name   string
		limits []Limit
	}{
		{"bare", nil},
		{"one", []Limit{{Name: "one", Max: many, Algorithm: "bucket"}}},
		{"one by header", []Limit{{Name: "one", Max: many, Algorithm: "bucket", Key: user}}},
		{"two", []Limit{{Name: "one", Max: many, Algorithm: "bucket"},
			{Name: "two", Max: many, Algorithm: "bucket"}}},
		{"in flight", []Limit{{Name: "calls", Max: "1000", Algorithm: "in-flight"}}},
	} {
		b.Run(bm.name, func(b *testing.B) {
			handler := caddyhttp.Handler(next)
			if bm.limits != nil {
				h := &Handler{Limits: bm.limits}
				ctx, cancel := caddy.NewContext(caddy.Context{Context: b.Context()})
				defer cancel()
				if err := h.Provision(ctx); err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() { _ = h.Cleanup() })
				handler = caddyhttp.HandlerFunc(
					func(w http.ResponseWriter, r *http.Request) error {
						return h.ServeHTTP(w, r, next)
					})
			}
			r, w := prepared(), discard{http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				clear(w.header)
				if err := handler.ServeHTTP(w, r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// prepared returns a request as a server of Caddy passes it to its handlers.
func prepared() *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	r.Header.Set("X-User", "ann")
	r = caddyhttp.PrepareRequest(r, caddy.NewReplacer(), nil, nil)
	caddyhttp.SetVar(r.Context(), caddyhttp.ClientIPVarKey, "192.0.2.1")
	return r
}

// discard is a ResponseWriter that keeps nothing but its header.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}
