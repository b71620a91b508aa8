package main

import (
	"net/http"
	"testing"
	"time"
)

// TestHTTPEntriesDecide: each middleware enforces its limits per peer, and all except x/time/rate
// write header fields.
func TestHTTPEntriesDecide(t *testing.T) {
	for _, e := range httpEntries {
		if _, err := openMemoryEntry(e.name, quota{1, time.Hour}); err != nil {
			t.Errorf("%s: %v", e.name, err)
		}
		m, err := openHTTPEntry(e.name, quota{3, time.Hour}, quota{2, time.Hour})
		if err != nil {
			t.Fatalf("%s: %v", e.name, err)
		}
		defer m.stop()
		edge := httpEdge(m)
		for i := range 4 {
			if ok, err := edge.call(); err != nil || ok != (i < 2) {
				t.Errorf("%s, request %d: got admitted %t, %v; want %t", e.name, i+1, ok, err,
					i < 2)
			}
		}
		w := &answer{header: http.Header{}}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.RemoteAddr = "192.0.2.2:1"
		m.wrap(http.NotFoundHandler()).ServeHTTP(w, request)
		if w.status != http.StatusNotFound {
			t.Errorf("%s: another peer got status %d, want 404", e.name, w.status)
		}
		if fields := len(w.header) > 2; fields == (e.name == xTime) {
			t.Errorf("%s: got header %v, want fields: %t", e.name, w.header, e.name != xTime)
		}
	}
}

// TestEdgesAdmit: each edge admits all its calls.
func TestEdgesAdmit(t *testing.T) {
	for _, c := range otherEdges(true).cases {
		values, err := c.measure(t.Context(), ours)
		if err != nil || values[2] != 1 {
			t.Errorf("%s: got %v, %v; want all calls admitted", c.name, values, err)
		}
	}
}
