package main

import (
	"net/http"
	"testing"
	"time"
)

// BenchmarkHTTP measures middleware in front of a handler that only sets a status, for one peer.
// The entry "bare" is the handler alone. Under two limits this module decides both together; of the
// others, two middlewares are chained.
func BenchmarkHTTP(b *testing.B) {
	admitting, second := quota{100_000, time.Millisecond}, quota{1_000_000, 10 * time.Millisecond}
	for _, c := range []struct {
		name   string
		quotas []quota
		status int
	}{
		{"one-limit", []quota{admitting}, http.StatusOK},
		{"two-limits", []quota{admitting, second}, http.StatusOK},
		{"refused", []quota{{1, time.Hour}}, http.StatusTooManyRequests},
	} {
		for _, e := range httpEntries {
			b.Run(c.name+"/entry="+e.name, func(b *testing.B) {
				m, err := openHTTPEntry(e, c.quotas...)
				if err != nil {
					b.Fatal(err)
				}
				defer m.stop()
				request, err := http.NewRequest(http.MethodGet, "/", nil)
				if err != nil {
					b.Fatal(err)
				}
				request.RemoteAddr = "192.0.2.1:1234"
				w, other := &answer{header: http.Header{}}, 0
				h := m.wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.WriteHeader(http.StatusOK)
				}))
				h.ServeHTTP(w, request)
				b.ReportAllocs()
				for b.Loop() {
					clear(w.header) // each request has its own header
					h.ServeHTTP(w, request)
					if w.status != c.status {
						other++
					}
				}
				b.ReportMetric(float64(other)/float64(b.N), "otherwise")
			})
		}
	}
}

// answer is a ResponseWriter that keeps the header and the status, like a server's.
type answer struct {
	header http.Header
	status int
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) Write(p []byte) (int, error) { return len(p), nil }
func (a *answer) WriteHeader(status int)      { a.status = status }

// TestHTTPEntriesDecide: each middleware enforces its limits per peer, and all except x/time/rate
// write header fields.
func TestHTTPEntriesDecide(t *testing.T) {
	for _, e := range httpEntries {
		if e.name == bare {
			continue
		}
		m, err := openHTTPEntry(e, quota{3, time.Hour}, quota{2, time.Hour})
		if err != nil {
			t.Fatalf("%s: %v", e.name, err)
		}
		defer m.stop()
		handler := m.wrap(http.NotFoundHandler())
		serve := func(peer string) *answer {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			if err != nil {
				t.Fatal(err)
			}
			request.RemoteAddr = peer
			w := &answer{header: http.Header{}}
			handler.ServeHTTP(w, request)
			return w
		}
		for i, want := range []int{404, 404, 429, 429} {
			if got := serve("192.0.2.1:1234").status; got != want {
				t.Errorf("%s, request %d: got status %d, want %d", e.name, i+1, got, want)
			}
		}
		w := serve("192.0.2.2:1")
		if w.status != http.StatusNotFound {
			t.Errorf("%s: another peer got status %d, want 404", e.name, w.status)
		}
		if fields := len(w.header) > 2; fields == (e.name == xTime) {
			t.Errorf("%s: got header %v, want fields: %t", e.name, w.header, e.name != xTime)
		}
	}
}
