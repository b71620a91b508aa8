package daemon

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
)

// TestMetricsOfPanics: a request whose handler panics is not counted as answered with 200.
func TestMetricsOfPanics(t *testing.T) {
	m, err := newMetrics()
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	h := m.measure(m.before(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" {
			w.WriteHeader(http.StatusNoContent)
		}
		panic(http.ErrAbortHandler)
	})))
	server := httptest.NewServer(h)
	defer server.Close()
	for _, path := range []string{"/v1/decide", "/healthz"} {
		if res, err := http.Get(server.URL + path); err == nil {
			res.Body.Close()
			t.Errorf("%s: %d", path, res.StatusCode)
		}
	}
	apitest.WantSeries(t, apitest.Scrape(t, server.URL), map[string]string{
		`http_server_request_duration_seconds_count route="/v1/decide" status_code="500"`: "1",
		`http_server_request_duration_seconds_count route="/healthz" status_code="204"`:   "1",
	})
}
