package command

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/truewindow/ratelimit/cmd/ratelimit/httpapi"
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

// TestRequestsBeforeAccessAreCounted: what is refused before a handler is counted under a known
// route and method, whatever a stranger sends.
func TestRequestsBeforeAccessAreCounted(t *testing.T) {
	base, _, _ := start(t, "--limit=tokens=2/1h",
		"--read-token-file="+apitest.TokenFile(t, apitest.Token))
	send := func(method, path string, header http.Header, body string) {
		t.Helper()
		req, err := http.NewRequestWithContext(
			t.Context(), method, base+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = header
		req.Host = header.Get("Host")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
	}
	read := http.Header{"Authorization": {"Bearer " + apitest.Token}}
	send("POST", "/v1/force", http.Header{}, "{}")
	send("GET", "/metrics", http.Header{}, "")
	send("GET", "/dashboard/secret-key", http.Header{}, "")
	send("GET", "/v1/top-keys", http.Header{"Host": {"elsewhere.example"}}, "")
	send("BREW", "/v1/top-keys", http.Header{"Host": {"elsewhere.example"}}, "")
	send("POST", "/v1/decide", http.Header{"Sec-Fetch-Site": {"cross-site"}}, "{}")
	send("GET", "/secret-key", http.Header{}, "")
	send("PUT", "/v1/decide", http.Header{}, "{}")
	send("POST", "/v1/decide", http.Header{}, strings.Repeat(" ", httpapi.MaxBody+1))
	send("GET", "/dashboard/", read, "")
	for _, head := range []string{
		"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("x", 1<<20),
		"GET /healthz HTTP/1.1\r\nHost: a b\r\n\r\n", "no request\r\n\r\n",
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = io.WriteString(conn, head) }()
		line, _ := bufio.NewReader(conn).ReadString('\n')
		if !strings.Contains(line, " 4") {
			t.Errorf("%.30q: %q", head, line)
		}
		_ = conn.Close()
	}
	shown := func() string {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header = read
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	const failed = `ratelimit_connections_failed_total{error_type="request",` +
		`network_protocol_name="http"} 3`
	for !strings.Contains(shown(), failed) {
		runtime.Gosched()
	}
	const count = `http_server_request_duration_seconds_count method="`
	apitest.WantSeries(t, shown(), map[string]string{
		count + `POST" route="/v1/force" "401"`:      "1",
		count + `GET" route="/metrics" "401"`:        "1",
		count + `GET" route="/dashboard/" "401"`:     "1",
		count + `GET" route="/dashboard/" "200"`:     "1",
		count + `GET" route="/v1/top-keys" "421"`:    "1",
		count + `_OTHER" route="/v1/top-keys" "421"`: "1",
		count + `POST" route="/v1/decide" "403"`:     "1",
		count + `GET" route="other" "404"`:           "1",
		count + `_OTHER" route="/v1/decide" "405"`:   "1",
		count + `POST" route="/v1/decide" "413"`:     "1",
		`ratelimit_connections_failed_total "tls"`:   "0",
		`ratelimit_connections_failed_total "grpc"`:  "0",
		`ratelimit_connections_failed_total "reques`: "3",
	})
	checkSecrets(t, shown())
}

// TestFailedHandshakesAreCounted: so are clients without a certificate, of HTTP and gRPC.
func TestFailedHandshakesAreCounted(t *testing.T) {
	a := apitest.NewAuthority(t)
	a.Issue("server")
	a.Issue("client")
	base, log, _ := start(t, "--tls-cert="+a.Path("server.pem"), "--tls-key="+a.Path("server.key"),
		"--tls-client-ca="+a.Path("ca.pem"), "--grpc-addr=127.0.0.1:0")
	base = strings.Replace(base, "http:", "https:", 1)
	if res, err := a.Client("").Get(base + "/healthz"); err == nil {
		_ = res.Body.Close()
		t.Error("a client without a certificate got an answer")
	}
	conn, err := grpc.NewClient(othersLogged.FindStringSubmatch(log.String())[1],
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := healthpb.NewHealthClient(conn).Check(
		t.Context(), new(healthpb.HealthCheckRequest)); err == nil {
		t.Error("a client without TLS got an answer")
	}
	client := a.Client("client")
	for {
		shown := apitest.ScrapeWith(t, client, base)
		if strings.Contains(shown, `{error_type="tls",network_protocol_name="http"} 1`) &&
			!strings.Contains(shown, `{error_type="tls",network_protocol_name="grpc"} 0`) {
			return
		}
		runtime.Gosched()
	}
}

// TestRequestsOnAddrAreCounted: those that only --admin-addr answers are counted too.
func TestRequestsOnAddrAreCounted(t *testing.T) {
	base, log, _ := start(t, "--admin-addr=127.0.0.1:0")
	post(t, base+"/v1/reset", `{"key":"secret-key"}`)
	admin := othersLogged.FindStringSubmatch(log.String())[1]
	apitest.WantSeries(t, apitest.Scrape(t, "http://"+admin), map[string]string{
		`http_server_request_duration_seconds_count route="/v1/reset" "404"`: "1"})
}
