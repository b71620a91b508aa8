package daemon

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

// scrape returns what /metrics of a daemon shows.
func scrape(t *testing.T, url string) string {
	t.Helper()
	return scrapeWith(t, http.DefaultClient, url)
}

func scrapeWith(t *testing.T, client *http.Client, url string) string {
	t.Helper()
	res, err := client.Get(url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != http.StatusOK ||
		!strings.HasPrefix(res.Header.Get("Content-Type"), "text/plain") {
		t.Fatalf("%d %v: %s", res.StatusCode, res.Header, body)
	}
	if got := res.Header.Get("Cache-Control"); got != "no-store" {
		t.Errorf("Cache-Control %q", got)
	}
	if strings.Contains(string(body), secret) {
		t.Errorf("it shows the key: %s", body)
	}
	return string(body)
}

// wantSeries reports series that are not in a scrape with that value. A series is its name and
// parts of its labels, separated by spaces.
func wantSeries(t *testing.T, scraped string, want map[string]string) {
	t.Helper()
series:
	for series, value := range want {
		for line := range strings.Lines(scraped) {
			if hasAll(line, strings.Fields(series)) && strings.HasSuffix(line, " "+value+"\n") {
				continue series
			}
		}
		t.Errorf("no %s %s in:\n%s", series, value, scraped)
	}
}

func hasAll(line string, parts []string) bool {
	for i, part := range parts {
		if i == 0 && !strings.HasPrefix(line, part+"{") && !strings.HasPrefix(line, part+" ") ||
			i > 0 && !strings.Contains(line, part) {
			return false
		}
	}
	return true
}

func TestMetrics(t *testing.T) {
	url, _, _ := start(t, "--limit=all=2/1h", "--in-flight=calls=1/1h", "--block=blocked=1h")
	for i, want := range []int{200, 200, 429} {
		if status, body := post(t, url+"/v1/decide", `{"key":"secret-key"}`); status != want {
			t.Errorf("take %d: %d %s", i, status, body)
		}
	}
	for range 2 {
		post(t, url+"/v1/decide", hold("calls"))
	}
	post(t, url+"/v1/"+secret, "")
	wantSeries(t, scrape(t, url), map[string]string{
		`ratelimit_limit_window_seconds limit="all"`: "3600",

		`ratelimit_decisions_total limit="all" outcome="admitted" source="store"`:    "2",
		`ratelimit_decisions_total limit="all" outcome="refused"`:                    "1",
		`ratelimit_decisions_total limit="calls" outcome="refused"`:                  "1",
		`ratelimit_decision_duration_seconds_count op="take" outcome="refused"`:      "1",
		`ratelimit_decision_duration_seconds_count op="hold" outcome="refused"`:      "1",
		`ratelimit_limit_max limit="all"`:                                            "2",
		`ratelimit_store_keys store="main"`:                                          "2",
		`http_server_request_duration_seconds_count route="/v1/decide" "429" "POST`:  "2",
		`http_server_request_duration_seconds_count route="other" status_code="404"`: "1",
		`go_build_info`: "1",
	})
	if status, _ := post(t, url+"/metrics", ""); status != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", status)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "attacker.example"
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusMisdirectedRequest {
		t.Errorf("another host: %d", res.StatusCode)
	}
}

// TestMetricsOfManyLimits: the refusals of each of 1,200 limits are shown, also of those that a
// later load adds, in less than 10,000 series and 2 MB.
func TestMetricsOfManyLimits(t *testing.T) {
	const first, all, together = 1100, 1200, 10
	limits := func(n int) string {
		var b strings.Builder
		b.WriteString("limits:\n")
		for i := range n {
			fmt.Fprintf(&b, "- {name: l%d, when: {tenant: t%[1]d}, key: [tenant], max: 1/1h}\n", i)
		}
		return b.String()
	}
	file := configFile(t, limits(first))
	url, _, _ := start(t, "--config="+file)
	decide := func(from, to int) {
		for i := from; i < to; i += together {
			var list []string
			for j := range together {
				list = append(list, fmt.Sprintf(`{"entries":{"tenant":"t%d"}}`, i+j))
			}
			body := `{"descriptors":[` + strings.Join(list, ",") + `]}`
			for _, want := range []int{200, 429} {
				if status, answer := post(t, url+"/v1/decide", body); status != want {
					t.Fatalf("%d: %d %s", i, status, answer)
				}
			}
		}
	}
	decide(0, first)
	writeFile(t, file, limits(all))
	for !strings.Contains(scrape(t, url), fmt.Sprintf("\nratelimit_config_limits %d\n", all)) {
		runtime.Gosched()
	}
	decide(first, all)
	shown := scrape(t, url)
	series := 0
	for line := range strings.Lines(shown) {
		if !strings.HasPrefix(line, "#") {
			series++
		}
	}
	refused := regexp.MustCompile(
		`(?m)^ratelimit_decisions_total\{ratelimit_limit="l\d+",.*"refused".* 1$`)
	if n := len(refused.FindAllString(shown, -1)); n != all || strings.Contains(shown, "overflow") {
		t.Errorf("the refusals of %d limits are shown", n)
	}
	if series >= 10_000 || len(shown) >= 2_000_000 {
		t.Errorf("%d series in %d bytes", series, len(shown))
	}
}

func TestMetricsWhileUnavailable(t *testing.T) {
	url, _, _ := start(t, "--on-failure=local", "--instances=1", "--limit=all=7/1h",
		"--store=redis://"+unusedAddr(t), "--breaker-failures=1", "--breaker-pause=1h")
	for range 3 {
		post(t, url+"/v1/decide", fmt.Sprintf(`{"key":%q}`, secret))
	}
	wantSeries(t, scrape(t, url), map[string]string{
		`ratelimit_decisions_total limit="all" outcome="admitted" source="local"`: "3",
		`ratelimit_breaker_state state="open" store="breaker"`:                    "1",
		`ratelimit_breaker_state state="closed"`:                                  "0",
		`ratelimit_local_active store="local"`:                                    "1",
		`ratelimit_local_decisions_total`:                                         "3",
		`ratelimit_store_queued store="main"`:                                     "0",
	})
}

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
	wantSeries(t, scrape(t, server.URL), map[string]string{
		`http_server_request_duration_seconds_count route="/v1/decide" status_code="500"`: "1",
		`http_server_request_duration_seconds_count route="/healthz" status_code="204"`:   "1",
	})
}
