package command

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	logcollector "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	collector "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	"google.golang.org/protobuf/proto"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
)

// receiver answers OTLP with a status, and keeps what it got as text.
type receiver struct {
	status int
	mu     sync.Mutex
	got    strings.Builder
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	var sent collector.ExportMetricsServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &sent)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil || req.URL.Path != "/v1/metrics" {
		r.got.WriteString(req.URL.Path + " is wrong")
	}
	r.got.WriteString(req.Header.Get("X-Tenant") + sent.String())
	w.Header().Set("Content-Type", "application/x-protobuf")
	w.WriteHeader(r.status)
}

// TestOTLP: the metrics go where the variables of OpenTelemetry say, at the latest at the end, and
// Prometheus gets them too. Without --otlp nothing is sent.
func TestOTLP(t *testing.T) {
	for _, tt := range []struct {
		args   []string
		status int
		failed bool
	}{
		{[]string{"--otlp"}, http.StatusOK, false},
		{[]string{"--otlp"}, http.StatusBadRequest, true},
		{nil, http.StatusOK, false},
	} {
		r := &receiver{status: tt.status}
		server := httptest.NewServer(r)
		t.Cleanup(server.Close)
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
		t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "X-Tenant=ours")
		t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "zone=west")
		t.Setenv("OTEL_SERVICE_NAME", "edge-limits")
		url, log, stop := start(t, append(tt.args, "--limit=all=2/1h")...)
		post(t, url+"/v1/decide", `{"key":"`+apitest.Secret+`"}`)
		apitest.WantSeries(t, apitest.Scrape(t, url), map[string]string{
			`ratelimit_decisions_total limit="all" outcome="admitted"`: "1"})
		if code := stop(); code != exitOK {
			t.Errorf("exit code %d", code)
		}
		got := r.got.String()
		for _, want := range []string{"ours", `"edge-limits"`, `"zone"`, `"ratelimit.decisions"`,
			`"ratelimit.descriptors"`, `"http.server.request.duration"`} {
			if strings.Contains(got, want) != (len(tt.args) > 0) {
				t.Errorf("%v: %s: sent %s", tt.args, want, got)
			}
		}
		if strings.Contains(got, apitest.Secret) || strings.Contains(got, "is wrong") {
			t.Errorf("sent %s", got)
		}
		if strings.Contains(log.String(), "not sent with OTLP") != tt.failed {
			t.Errorf("%v %d: %s", tt.args, tt.status, log)
		}
	}
}

// logReceiver answers OTLP with a status, and keeps the bodies of logs that it got.
type logReceiver struct {
	status int
	mu     sync.Mutex
	bodies []string
	names  string
}

func (r *logReceiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	var sent logcollector.ExportLogsServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &sent)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil || req.URL.Path != "/v1/logs" {
		r.names += req.URL.Path + " is wrong"
	}
	for _, resource := range sent.ResourceLogs {
		r.names += resource.Resource.String()
		for _, record := range resource.ScopeLogs[0].LogRecords {
			r.bodies = append(r.bodies, record.Body.GetStringValue())
			r.names += record.EventName + record.SeverityText
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
	w.WriteHeader(r.status)
}

// TestAuditOTLP: --audit-otlp sends the lines of the file, at the latest at the end; what is not
// taken is in the log.
func TestAuditOTLP(t *testing.T) {
	for _, status := range []int{http.StatusOK, http.StatusBadRequest} {
		r := &logReceiver{status: status}
		server := httptest.NewServer(r)
		t.Cleanup(server.Close)
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
		path := filepath.Join(t.TempDir(), "audit.jsonl")
		url, log, stop := start(t, "--limit=tokens=2/1h", "--audit-otlp", "--audit="+path)
		post(t, url+"/v1/reset", apitest.One("tokens", ""))
		post(t, url+"/v1/force", apitest.One("tokens", `"n":1`))
		stop()
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(r.bodies, "\n") + "\n"; got != string(text) ||
			!strings.Contains(r.names, "ratelimit.audit") ||
			!strings.Contains(r.names, "service.name") || strings.Contains(r.names, "wrong") {
			t.Errorf("sent %s %s, and the file has %s", got, r.names, text)
		}
		if strings.Contains(log.String(), "audit is not sent") != (status != http.StatusOK) {
			t.Errorf("%d: %s", status, log)
		}
	}
}
