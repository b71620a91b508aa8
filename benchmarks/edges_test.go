package main

import (
	"net/http"
	"testing"
	"time"
)

// Each middleware keeps a limit, and all but the one without fields tell about it.
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
				t.Errorf("%s, request %d: %v, %v", e.name, i+1, ok, err)
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
			t.Errorf("%s: another peer gets %d", e.name, w.status)
		}
		if fields := len(w.header) > 2; fields == (e.name == xTime) {
			t.Errorf("%s: the header is %v", e.name, w.header)
		}
	}
}

// Each edge admits, and the bare call is the same without the limits.
func TestEdgesAdmit(t *testing.T) {
	for _, c := range otherEdges(true).cases {
		values, err := c.measure(t.Context(), ours)
		if err != nil || values[2] != 1 {
			t.Errorf("%s: %v, %v", c.name, values, err)
		}
	}
}
