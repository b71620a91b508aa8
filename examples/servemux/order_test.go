package main

import (
	"net/http"
	"net/http/httptest"
	"testing"

	memorystore "github.com/truewindow/ratelimit/backend/memory"
)

// allowOrigin is middleware for CORS in its simplest form.
func allowOrigin(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "https://example.com")
		if r.Method == http.MethodOptions {
			w.Header().Set("Access-Control-Allow-Headers", "X-User")
			w.WriteHeader(http.StatusNoContent)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// TestOrder: with CORS outside and limits inside, preflight requests cost nothing and scripts can
// read refusals.
func TestOrder(t *testing.T) {
	store, err := memorystore.New(&memorystore.Options{Now: func() int64 { return 1e15 }})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	handler, err := newHandler(store, func(id string) string { return id })
	if err != nil {
		t.Fatal(err)
	}
	handler = allowOrigin(handler)
	for i, c := range []struct {
		method string
		status int
	}{
		{"OPTIONS", 204}, {"OPTIONS", 204}, {"OPTIONS", 204}, {"OPTIONS", 204},
		{"GET", 200}, {"GET", 200}, {"GET", 200}, {"GET", 429}, {"OPTIONS", 204},
	} {
		r := httptest.NewRequest(c.method, "/users/1", nil)
		r.Header.Set("X-User", "ann")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != c.status || w.Header().Get("Access-Control-Allow-Origin") == "" {
			t.Errorf("request %d: answered with %d, want %d: %v", i, w.Code, c.status, w.Header())
		}
	}
}
