package daemon

import (
	"net/http"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

const observedLimits = `
limits:
  - {name: units, key: [tenant], max: 2/1h, warn: 50%}
  - {name: tried, when: {tenant: "*"}, key: [tenant], max: 1/1h, mode: shadow}
`

// observed returns a daemon that has decided four requests, and the path of its file.
func observed(t *testing.T) (url string, log *syncBuffer, file string) {
	t.Helper()
	file = configFile(t, observedLimits)
	url, log, _ = start(t, "--config="+file, "--grpc-addr=127.0.0.1:0")
	for _, tt := range []struct {
		entry string
		want  int
	}{{"tenant", 200}, {"tenant", 200}, {"tenant", 429}, {"other", 200}} {
		body := `{"descriptor":{"` + tt.entry + `":"` + secret + `"}}`
		if status, answer := post(t, url+"/v1/decide", body); status != tt.want {
			t.Fatalf("%s: %d %s", body, status, answer)
		}
	}
	conn := dialEnvoy(t, log)
	shouldRateLimit(t, conn, "acme")
	shouldRateLimit(t, conn, secret)
	if status, _ := post(t, url+"/json", `{"domain":"api"}`); status != http.StatusBadRequest {
		t.Errorf("no descriptor: %d", status)
	}
	return url, log, file
}

// TestServiceMetrics: what decides, Envoy's calls and the configuration are counted, and limits
// only while they are in force.
func TestServiceMetrics(t *testing.T) {
	url, log, file := observed(t)
	wantSeries(t, scrape(t, url), map[string]string{
		`ratelimit_descriptors_total matched="true"`:                                  "5",
		`ratelimit_descriptors_total matched="false"`:                                 "1",
		`ratelimit_one_by_one_total`:                                                  "0",
		`ratelimit_shadow_refused_total limit="tried"`:                                "1",
		`ratelimit_shadow_decisions_total limit="tried" outcome="refused" "admitted"`: "1",
		`ratelimit_shadow_decisions_total limit="tried" outcome="admitted" live="adm`: "2",
		`ratelimit_warned_total limit="units"`:                                        "5",
		`ratelimit_envoy_calls_total outcome="ok"`:                                    "1",
		`ratelimit_envoy_calls_total outcome="over_limit"`:                            "1",
		`ratelimit_envoy_calls_total outcome="invalid"`:                               "1",
		`ratelimit_envoy_calls_total outcome="failed"`:                                "0",
		`ratelimit_envoy_unknown_domain_total`:                                        "0",
		`ratelimit_envoy_looks_total`:                                                 "0",
		`ratelimit_envoy_not_utf8_total`:                                              "0",
		`ratelimit_config_valid`:                                                      "1",
		`ratelimit_credentials_valid file="write-token-file"`:                         "1",
		`ratelimit_config_failures_total`:                                             "0",
		`ratelimit_config_limits`:                                                     "2",
		`ratelimit_decisions_total limit="units" outcome="refused"`:                   "2",
		`http_server_request_duration_seconds_count route="/json" status_code="400"`:  "1",
	})
	loaded := regexp.MustCompile(`(?m)^ratelimit_config_loaded_timestamp_seconds (.*)$`)
	before := loaded.FindString(scrape(t, url))
	writeFile(t, file, "limits: [{name: units, max: many}]\n")
	for !strings.Contains(scrape(t, url), "\nratelimit_config_failures_total 1\n") {
		runtime.Gosched()
	}
	broken := scrape(t, url)
	wantSeries(t, broken, map[string]string{
		`ratelimit_config_valid`: "0", `ratelimit_config_limits`: "2"})
	if now := loaded.FindString(broken); now != before || now == "" {
		t.Errorf("%q, and before the failure %q", now, before)
	}
	writeFile(t, file, "limits: [{name: others, key: [tenant], max: 9/1h}]\n")
	for !strings.Contains(scrape(t, url), "\nratelimit_config_limits 1\n") {
		runtime.Gosched()
	}
	left := regexp.MustCompile(`ratelimit_(warned|shadow_refused)_total\{.*`)
	if series := left.FindString(scrape(t, url)); series != "" {
		t.Errorf("of a limit that is not in force: %s", series)
	}
	if strings.Contains(log.String(), secret) {
		t.Errorf("the log has the key: %s", log)
	}
}

// documentedMetrics are the names that the page of metrics has in the section of the daemon.
func documentedMetrics(t *testing.T) (names []string) {
	t.Helper()
	page, err := os.ReadFile("../../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## What the daemon counts besides\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, m := range regexp.MustCompile("`(ratelimit_\\w+)`").FindAllStringSubmatch(section, -1) {
		names = append(names, m[1])
	}
	slices.Sort(names)
	return names
}

// TestServiceMetricsInDocs compares the metrics of the page with those of a service.
func TestServiceMetricsInDocs(t *testing.T) {
	url, _, _ := observed(t)
	a := newAuthority(t)
	a.issue("server")
	secure, _, _ := start(t, "--tls-cert="+a.path("server.pem"), "--tls-key="+a.path("server.key"))
	shown := scrape(t, url) +
		scrapeWith(t, a.client(""), strings.Replace(secure, "http:", "https:", 1))
	for _, name := range documentedMetrics(t) {
		if !strings.Contains(shown, "\n# TYPE "+name+" ") {
			t.Errorf("%s is not shown", name)
		}
	}
}

// TestDocumentedMetrics compares the metrics of the page with those that there are.
func TestDocumentedMetrics(t *testing.T) {
	var want []string
	for _, m := range serviceMetrics {
		name := strings.ReplaceAll(m.name, ".", "_")
		if m.unit == "s" {
			name += "_seconds"
		}
		if m.counter {
			name += "_total"
		}
		want = append(want, name)
	}
	slices.Sort(want)
	if named := documentedMetrics(t); !slices.Equal(named, want) {
		t.Errorf("the page names\n%q, want\n%q", named, want)
	}
}

// TestLogOfConfiguration: the log has the path, the hash and the number of the limits in force, at
// the start and once for each load.
func TestLogOfConfiguration(t *testing.T) {
	file := configFile(t, observedLimits)
	_, log, _ := start(t, "--config="+file)
	hash := regexp.MustCompile(`"msg":"listening","config":"` + regexp.QuoteMeta(file) +
		`","hash":"([0-9a-f]{64})"`).FindStringSubmatch(log.String())
	if hash == nil {
		t.Fatalf("no hash: %s", log)
	}
	loads := regexp.MustCompile(`"the configuration is loaded","config":"` +
		regexp.QuoteMeta(file) + `","hash":"([0-9a-f]{64})","limits":(\d+)`)
	writeFile(t, file, "limits: [{name: others, key: [tenant], max: 9/1h}]\n")
	for !strings.Contains(log.String(), `"limits":1}`) {
		runtime.Gosched()
	}
	lines := loads.FindAllStringSubmatch(log.String(), -1)
	if len(lines) != 2 || lines[0][1] != hash[1] || lines[0][2] != "2" || lines[1][2] != "1" ||
		lines[1][1] == hash[1] {
		t.Errorf("%q after %q", lines, hash)
	}
}
