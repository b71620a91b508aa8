package commands

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/truewindow/ratelimit/integration/daemon"
	"github.com/truewindow/ratelimit/integration/servers"
)

const prometheusImage = "prom/prometheus:v2.53.3"

// TestServePrometheus: a Prometheus scrapes the daemon, gets what clients got and no key, and
// evaluates the alert rules. Promtool finds nothing wrong with the rules, their tests and the
// metrics.
func TestServePrometheus(t *testing.T) {
	t.Parallel()
	const limit, keys, each = 7, 3, 20
	bin := daemon.Build(t)
	s := servers.Start(t, servers.Images()[0])
	d := daemon.Start(t, bin, "--addr=0.0.0.0:0", "--host="+servers.HostName,
		"--store=redis://"+s.Addr+"?timeout=10s", "--on-failure=closed",
		fmt.Sprintf("--limit=all=%d/1h", limit))
	for i := range keys {
		key := fmt.Sprintf("secret-key-%d", i)
		for range each {
			d.Post(t, "/v1/decide", key)
		}
		d.Post(t, "/v1/peek", key)
	}
	d.PostJSON(t, "/v1/decide", "no JSON")

	p := startPrometheus(t, d)
	servers.Within(t, func() bool { return p.value(t, "up") == "1" }, "the first scrape")
	const decisions = `ratelimit_decisions_total{ratelimit_limit="all",ratelimit_source="store",` +
		`ratelimit_op=%q,ratelimit_outcome=%q}`
	const requests = `http_server_request_duration_seconds_count{http_route="/v1/decide",` +
		`http_response_status_code="%d"}`
	for _, q := range []struct {
		query string
		want  int
	}{
		{fmt.Sprintf(decisions, "take", "admitted"), keys * limit},
		{fmt.Sprintf(decisions, "take", "refused"), keys * (each - limit)},
		{fmt.Sprintf(decisions, "peek", "refused"), keys},
		{"sum(ratelimit_decisions_total)", keys * (each + 1)},
		{"sum(ratelimit_decision_duration_seconds_count)", keys * (each + 1)},
		{fmt.Sprintf(requests, http.StatusOK), keys * limit},
		{fmt.Sprintf(requests, http.StatusTooManyRequests), keys * (each - limit)},
		{fmt.Sprintf(requests, http.StatusBadRequest), 1},
		{"ratelimit_limit_max", limit},
		{"ratelimit_limit_window_seconds", 3600},
	} {
		if got := p.value(t, q.query); got != fmt.Sprint(q.want) {
			t.Errorf("%s is %s, want %d", q.query, got, q.want)
		}
	}
	if all := p.get(t, "series", "match[]", `{job="ratelimit"}`); !strings.Contains(all, "all") ||
		strings.Contains(all, "secret") {
		t.Errorf("a series has a key, or there are none: %s", all)
	}

	servers.Within(t, func() bool {
		rules := p.get(t, "rules")
		if strings.Contains(rules, `"health":"err"`) {
			t.Fatal(rules)
		}
		evaluated := strings.Count(rules, `"health":"ok"`)
		return evaluated > 0 && evaluated == strings.Count(rules, `"health":`)
	}, "the evaluation of the rules")
	p.Exec(t, "promtool", "check", "rules", configDir+"alerts.yml")
	p.Exec(t, "promtool", "test", "rules", configDir+"alerts_test.yml")
	p.Exec(t, "sh", "-c", "promtool check metrics <"+configDir+"metrics")
}

// TestServeRefusalAlert: the alert RateLimitRefusesMuch names each limit that refuses most of its
// calls, whether they take, hold, extend, are in flight or only ask, and not one that refuses a
// third.
func TestServeRefusalAlert(t *testing.T) {
	t.Parallel()
	const claim, hold = `{"claims":[{"limit":%q,"key":"k"}]}`,
		`{"claims":[{"limit":%q,"key":"k"}],"hold_ms":900000}`
	d := daemon.Start(t, daemon.Build(t), "--addr=0.0.0.0:0", "--host="+servers.HostName,
		"--limit=takes=1/1h", "--limit=holds=1/1h", "--limit=extends=3/1h", "--limit=third=10/1h",
		"--in-flight=calls=1/1h", "--block=blocked=1h")
	post := func(path, body string, want int) string {
		t.Helper()
		status, answer, _ := d.PostJSON(t, path, body)
		if status != want {
			t.Errorf("%s %s: %d %s, want %d", path, body, status, answer, want)
		}
		return answer
	}
	decide := func(form, limit string, want int) string {
		t.Helper()
		return post("/v1/decide", fmt.Sprintf(form, limit), want)
	}
	decide(claim, "takes", http.StatusOK)
	decide(hold, "holds", http.StatusOK)
	decide(hold, "calls", http.StatusOK)
	post("/v1/block", `{"limit":"blocked","key":"k","for_ms":3600000}`, http.StatusOK)
	var held struct{ ID string }
	if err := json.Unmarshal(
		[]byte(decide(hold, "extends", http.StatusOK)), &held); err != nil {
		t.Fatal(err)
	}
	decide(`{"claims":[{"limit":%q,"key":"k","n":2}]}`, "extends", http.StatusOK)

	p := startPrometheus(t, d)
	servers.Within(t, func() bool { return p.value(t, "up") == "1" }, "the first scrape")
	expr := refusalExpr(t)
	const want = "blocked calls extends holds takes"
	servers.Within(t, func() bool {
		decide(claim, "takes", http.StatusTooManyRequests)
		decide(hold, "holds", http.StatusTooManyRequests)
		decide(hold, "calls", http.StatusTooManyRequests)
		decide(claim, "blocked", http.StatusTooManyRequests)
		post("/v1/renew", fmt.Sprintf(`{"id":%q,"total":2}`, held.ID), http.StatusTooManyRequests)
		post("/v1/reset", `{"limit":"third","key":"k"}`, http.StatusNoContent)
		for _, n := range []int{5, 5, 1} {
			status := http.StatusOK
			if n == 1 {
				status = http.StatusTooManyRequests
			}
			decide(fmt.Sprintf(`{"claims":[{"limit":%%q,"key":"k","n":%d}]}`, n), "third", status)
		}
		return p.limits(t, expr) == want
	}, "the alert for "+want)
}

// refusalExpr returns the expression of the alert RateLimitRefusesMuch.
func refusalExpr(t *testing.T) string {
	t.Helper()
	var file struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	content, err := os.ReadFile("../../docs/metrics/alerts.yml")
	if err == nil {
		err = yaml.Unmarshal(content, &file)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range file.Groups[0].Rules {
		if r.Alert == "RateLimitRefusesMuch" {
			return r.Expr
		}
	}
	t.Fatal("there is no such alert")
	return ""
}

// limits returns the limits of the series that a query finds, sorted.
func (p *scraper) limits(t *testing.T, query string) string {
	t.Helper()
	var answer struct {
		Data struct {
			Result []struct{ Metric map[string]string }
		}
	}
	if body := p.get(t, "query", "query", query); body != "" {
		if err := json.Unmarshal([]byte(body), &answer); err != nil {
			t.Fatalf("%v: %s", err, body)
		}
	}
	var names []string
	for _, r := range answer.Data.Result {
		names = append(names, r.Metric["ratelimit_limit"])
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// configDir is where Prometheus has its files.
const configDir = "/etc/prometheus/"

// A scraper is a Prometheus in a container.
type scraper struct {
	*servers.Other
	client *http.Client
}

// startPrometheus starts a Prometheus that scrapes d and evaluates the alert rules.
func startPrometheus(t *testing.T, d *daemon.Daemon) *scraper {
	t.Helper()
	_, metrics := d.Get(t, "/metrics")
	files := map[string]string{
		configDir + "metrics": metrics,
		configDir + "prometheus.yml": fmt.Sprintf(`
global: {scrape_interval: 200ms, scrape_timeout: 200ms, evaluation_interval: 200ms}
rule_files: [alerts.yml]
scrape_configs:
  - job_name: ratelimit
    static_configs: [{targets: ["%s:%s"]}]
`, servers.HostName, d.Port()),
	}
	for _, name := range []string{"alerts.yml", "alerts_test.yml"} {
		content, err := os.ReadFile("../../docs/metrics/" + name)
		if err != nil {
			t.Fatal(err)
		}
		files[configDir+name] = string(content)
	}
	o := servers.StartOther(t, prometheusImage, files, "prometheus",
		"--config.file="+configDir+"prometheus.yml", "--storage.tsdb.path=/prometheus")
	p := &scraper{o, &http.Client{Timeout: 10 * time.Second}}
	t.Cleanup(p.client.CloseIdleConnections)
	return p
}

// get returns the answer to a request of the HTTP API with pairs of parameters, or nothing as long
// as Prometheus is not ready.
func (p *scraper) get(t *testing.T, path string, params ...string) string {
	t.Helper()
	query := url.Values{}
	for i := 0; i < len(params); i += 2 {
		query.Set(params[i], params[i+1])
	}
	res, err := p.client.Get("http://" + p.IP + ":9090/api/v1/" + path + "?" + query.Encode())
	if err != nil {
		return ""
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	switch {
	case err != nil:
		t.Fatal(err)
	case res.StatusCode == http.StatusServiceUnavailable:
		return ""
	case res.StatusCode != http.StatusOK:
		t.Fatalf("%s %v: %d: %s", path, params, res.StatusCode, body)
	}
	return string(body)
}

// value returns the value of a query that finds one series, or how many it finds.
func (p *scraper) value(t *testing.T, query string) string {
	t.Helper()
	var answer struct {
		Data struct{ Result []struct{ Value [2]any } }
	}
	if body := p.get(t, "query", "query", query); body != "" {
		if err := json.Unmarshal([]byte(body), &answer); err != nil {
			t.Fatalf("%v: %s", err, body)
		}
	}
	found := answer.Data.Result
	if len(found) != 1 {
		return fmt.Sprintf("%d series", len(found))
	}
	return fmt.Sprint(found[0].Value[1])
}
