package command

import (
	"fmt"
	"net/http"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
)

func TestMetrics(t *testing.T) {
	url, _, _ := start(t, "--limit=all=2/1h", "--in-flight=calls=1/1h", "--block=blocked=1h")
	for i, want := range []int{200, 200, 429} {
		if status, body := post(t, url+"/v1/decide", `{"key":"secret-key"}`); status != want {
			t.Errorf("take %d: %d %s", i, status, body)
		}
	}
	for range 2 {
		post(t, url+"/v1/decide", apitest.Hold("calls"))
	}
	post(t, url+"/v1/"+apitest.Secret, "")
	apitest.WantSeries(t, apitest.Scrape(t, url), map[string]string{
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
	file := apitest.ConfigFile(t, limits(first))
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
	apitest.WriteFile(t, file, limits(all))
	for !strings.Contains(apitest.Scrape(t, url),
		fmt.Sprintf("\nratelimit_config_limits %d\n", all)) {
		runtime.Gosched()
	}
	decide(first, all)
	shown := apitest.Scrape(t, url)
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
		post(t, url+"/v1/decide", fmt.Sprintf(`{"key":%q}`, apitest.Secret))
	}
	apitest.WantSeries(t, apitest.Scrape(t, url), map[string]string{
		`ratelimit_decisions_total limit="all" outcome="admitted" source="local"`: "3",
		`ratelimit_breaker_state state="open" store="breaker"`:                    "1",
		`ratelimit_breaker_state state="closed"`:                                  "0",
		`ratelimit_local_active store="local"`:                                    "1",
		`ratelimit_local_decisions_total`:                                         "3",
		`ratelimit_store_queued store="main"`:                                     "0",
	})
}
