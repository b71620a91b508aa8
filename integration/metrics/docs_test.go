package metrics

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.yaml.in/yaml/v3"

	"github.com/truewindow/ratelimit/otellimit"
)

// TestNamesInDocs: Prometheus shows every metric that the dashboard, the rules and the page name,
// and the page names every metric that Prometheus shows.
func TestNamesInDocs(t *testing.T) {
	shown := shownNames(t)
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	// What only the daemon counts is compared by the tests of the daemon.
	before, daemon, found := bytes.Cut(page, []byte("\n## What the daemon counts besides\n"))
	daemon, after, _ := bytes.Cut(daemon, []byte("\n## "))
	if page = slices.Concat(before, after); !found {
		t.Error("docs/metrics.md has no section about the daemon")
	}
	ofDaemon := metricRows(daemon)
	for name, read := range map[string]func(*testing.T) []string{
		"dashboard": dashboardQueries, "rules": ruleQueries,
	} {
		queries := read(t)
		if len(queries) < 8 {
			t.Errorf("%s: %d queries", name, len(queries))
		}
		for _, query := range queries {
			for _, metric := range names(query) {
				if !shown[metric] && !ofDaemon[metric] {
					t.Errorf("%s: no metric is named %s: %s", name, metric, query)
				}
			}
		}
	}
	inTable := metricRows(page)
	base := regexp.MustCompile("_(bucket|sum|count)$")
	for metric := range shown {
		if family := base.ReplaceAllString(metric, ""); !inTable[family] {
			t.Errorf("docs/metrics.md does not name %s", family)
		}
	}
	for metric := range inTable {
		if !shown[metric] && !shown[metric+"_bucket"] {
			t.Errorf("docs/metrics.md names %s, which is not shown", metric)
		}
	}
}

// metricRows returns the metrics of the tables that begin with what their rows are of.
func metricRows(page []byte) map[string]bool {
	rows := make(map[string]bool)
	for _, table := range regexp.MustCompile(`(?m)^\| of \|.*\n(\|.*\n)+`).FindAll(page, -1) {
		for _, name := range regexp.MustCompile("`(ratelimit_\\w+)`").FindAllSubmatch(table, -1) {
			rows[string(name[1])] = true
		}
	}
	return rows
}

// names returns the metrics of a query, without labels: those are in braces, or after by.
func names(query string) []string {
	query = regexp.MustCompile(`\{[^}]*\}|\b(by|without)\s*\([^)]*\)`).ReplaceAllString(query, "")
	return regexp.MustCompile(`ratelimit_\w+`).FindAllString(query, -1)
}

// shownNames returns the names in a scrape of all metrics.
func shownNames(t *testing.T) map[string]bool {
	t.Helper()
	registry := prometheus.NewRegistry()
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry))
	if err != nil {
		t.Fatal(err)
	}
	m, err := otellimit.New(sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter)))
	if err != nil {
		t.Fatal(err)
	}
	everything(t, m)
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer,
		httptest.NewRequest(http.MethodGet, "/metrics", nil))
	shown := make(map[string]bool)
	for line := range strings.Lines(answer.Body.String()) {
		if name, _, ok := strings.Cut(line, "{"); ok && strings.HasPrefix(name, "ratelimit_") {
			shown[name] = true
		}
	}
	return shown
}

func dashboardQueries(t *testing.T) (queries []string) {
	t.Helper()
	var dashboard struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	data, err := os.ReadFile("../../docs/metrics/dashboard.json")
	if err == nil {
		err = json.Unmarshal(data, &dashboard)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			queries = append(queries, target.Expr)
		}
	}
	return queries
}

func ruleQueries(t *testing.T) (queries []string) {
	t.Helper()
	var rules struct {
		Groups []struct{ Rules []struct{ Expr string } }
	}
	readYAML(t, "alerts.yml", &rules)
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			queries = append(queries, rule.Expr)
		}
	}
	return queries
}

// TestAlertsAreTested: alerts_test.yml, which promtool runs, has for each alert a time when it
// fires and one when it does not.
func TestAlertsAreTested(t *testing.T) {
	var rules struct {
		Groups []struct{ Rules []struct{ Alert string } }
	}
	var file struct {
		Tests []struct {
			Times []struct {
				Alert  string `yaml:"alertname"`
				Expect []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	readYAML(t, "alerts.yml", &rules)
	readYAML(t, "alerts_test.yml", &file)
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		for _, at := range test.Times {
			if len(at.Expect) > 0 {
				fires[at.Alert] = true
			} else {
				silent[at.Alert] = true
			}
		}
	}
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			if !fires[rule.Alert] || !silent[rule.Alert] {
				t.Errorf("%s: tested to fire %t, not to fire %t",
					rule.Alert, fires[rule.Alert], silent[rule.Alert])
			}
		}
	}
}

// readYAML reads a file of docs/metrics.
func readYAML(t *testing.T, name string, into any) {
	t.Helper()
	data, err := os.ReadFile("../../docs/metrics/" + name)
	if err == nil {
		err = yaml.Unmarshal(data, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}
