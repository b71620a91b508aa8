package command

import (
	"net/http"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/xdstest"
)

const observedLimits = `
limits:
  - {name: units, key: [tenant], max: 2/1h, warn: 50%}
  - {name: tried, when: {tenant: "*"}, key: [tenant], max: 1/1h, mode: shadow}
`

// observed returns a daemon that has decided four requests, and the path of its file.
func observed(t *testing.T) (url string, log *apitest.Log, file string) {
	t.Helper()
	file = apitest.ConfigFile(t, observedLimits)
	url, log, _ = start(t, "--config="+file, "--grpc-addr=127.0.0.1:0",
		"--audit="+filepath.Join(t.TempDir(), "audit.jsonl"))
	for _, tt := range []struct {
		entry string
		want  int
	}{{"tenant", 200}, {"tenant", 200}, {"tenant", 429}, {"other", 200}} {
		body := `{"descriptor":{"` + tt.entry + `":"` + apitest.Secret + `"}}`
		if status, answer := post(t, url+"/v1/decide", body); status != tt.want {
			t.Fatalf("%s: %d %s", body, status, answer)
		}
	}
	conn := dialEnvoy(t, log)
	shouldRateLimit(t, conn, "acme")
	shouldRateLimit(t, conn, apitest.Secret)
	if status, _ := post(t, url+"/json", `{"domain":"api"}`); status != http.StatusBadRequest {
		t.Errorf("no descriptor: %d", status)
	}
	return url, log, file
}

// TestServiceMetrics: what decides, Envoy's calls and the configuration are counted, and limits
// only while they are in force.
func TestServiceMetrics(t *testing.T) {
	url, log, file := observed(t)
	apitest.WantSeries(t, apitest.Scrape(t, url), map[string]string{
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
	before := loaded.FindString(apitest.Scrape(t, url))
	apitest.WriteFile(t, file, "limits: [{name: units, max: many}]\n")
	for !strings.Contains(apitest.Scrape(t, url), "\nratelimit_config_failures_total 1\n") {
		runtime.Gosched()
	}
	broken := apitest.Scrape(t, url)
	apitest.WantSeries(t, broken, map[string]string{
		`ratelimit_config_valid`: "0", `ratelimit_config_limits`: "2"})
	if now := loaded.FindString(broken); now != before || now == "" {
		t.Errorf("%q, and before the failure %q", now, before)
	}
	apitest.WriteFile(t, file, "limits: [{name: others, key: [tenant], max: 9/1h}]\n")
	for !strings.Contains(apitest.Scrape(t, url), "\nratelimit_config_limits 1\n") {
		runtime.Gosched()
	}
	left := regexp.MustCompile(`ratelimit_(warned|shadow_refused)_total\{.*`)
	if series := left.FindString(apitest.Scrape(t, url)); series != "" {
		t.Errorf("of a limit that is not in force: %s", series)
	}
	if strings.Contains(log.String(), apitest.Secret) {
		t.Errorf("the log has the key: %s", log)
	}
}

// TestServiceMetricsInDocs compares the metrics of the page with those of a service.
func TestServiceMetricsInDocs(t *testing.T) {
	url, _, _ := observed(t)
	a := apitest.NewAuthority(t)
	a.Issue("server")
	secure, _, _ := start(t, "--tls-cert="+a.Path("server.pem"), "--tls-key="+a.Path("server.key"))
	setXDS(t, xdstest.New(t, nil))
	t.Setenv("FORCE_START_WITHOUT_INITIAL_CONFIG", "true")
	byXDS, _, _ := start(t)
	shown := apitest.Scrape(t, url) + apitest.Scrape(t, byXDS) +
		apitest.ScrapeWith(t, a.Client(""), strings.Replace(secure, "http:", "https:", 1))
	for _, name := range apitest.DocumentedMetrics(t) {
		if !strings.Contains(shown, "\n# TYPE "+name+" ") {
			t.Errorf("%s is not shown", name)
		}
	}
}

// TestLogOfConfiguration: the log has the path, the hash and the number of the limits in force, at
// the start and once for each load.
func TestLogOfConfiguration(t *testing.T) {
	file := apitest.ConfigFile(t, observedLimits)
	_, log, _ := start(t, "--config="+file)
	hash := regexp.MustCompile(`"msg":"listening","config":"` + regexp.QuoteMeta(file) +
		`","hash":"([0-9a-f]{64})"`).FindStringSubmatch(log.String())
	if hash == nil {
		t.Fatalf("no hash: %s", log)
	}
	loads := regexp.MustCompile(`"the configuration is loaded","config":"` +
		regexp.QuoteMeta(file) + `","hash":"([0-9a-f]{64})","limits":(\d+)`)
	apitest.WriteFile(t, file, "limits: [{name: others, key: [tenant], max: 9/1h}]\n")
	for !strings.Contains(log.String(), `"limits":1}`) {
		runtime.Gosched()
	}
	lines := loads.FindAllStringSubmatch(log.String(), -1)
	if len(lines) != 2 || lines[0][1] != hash[1] || lines[0][2] != "2" || lines[1][2] != "1" ||
		lines[1][1] == hash[1] {
		t.Errorf("%q after %q", lines, hash)
	}
}
