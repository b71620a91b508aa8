package command

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/truewindow/ratelimit/cmd/ratelimit/httpapi"
	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
)

// A traced is a line of the log about a write or a refusal.
type traced struct {
	Msg, Level, Action, From, Outcome, For, Path string
	Status, Suppressed                           int
	Units                                        int64
	Token                                        bool
	Limits                                       []string
	Hashes                                       []string `json:"key_hashes"`
}

// tracedLines returns the lines of a log that have a message.
func tracedLines(t *testing.T, log, msg string) (lines []traced) {
	t.Helper()
	for text := range strings.Lines(log) {
		if !strings.Contains(text, fmt.Sprintf(`"msg":%q`, msg)) {
			continue
		}
		var line traced
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		lines = append(lines, line)
	}
	return lines
}

// checkSecrets reports keys, tokens and ids in a log.
func checkSecrets(t *testing.T, log string, secrets ...string) {
	t.Helper()
	for _, text := range append(secrets, apitest.Secret, apitest.Token) {
		if strings.Contains(log, text) {
			t.Errorf("the log has %q: %s", text, log)
		}
	}
}

// TestWritesLeaveALine: each write, done or not, leaves a line with its limits and the hash of the
// key that the list of the most refused keys has.
func TestWritesLeaveALine(t *testing.T) {
	base, log, _ := start(t, "--limit=tokens=2/1h", "--limit=day=9/24h", "--in-flight=calls=1/1h",
		"--block=blocked=1h", "--top-keys=5")
	var held, refused struct {
		ID     string
		Limits []struct {
			Keys []struct {
				Hash string `json:"key_hash"`
			}
		}
	}
	do := func(path, body string, want int) string {
		t.Helper()
		status, answer := post(t, base+path, body)
		if status != want {
			t.Fatalf("%s %s: %d %s", path, body, status, answer)
		}
		return answer
	}
	if err := json.Unmarshal([]byte(do("/v1/decide", `{"claims":[
		{"limit":"tokens","key":"secret-key","n":2},{"limit":"calls","key":"secret-key"}],
		"hold_ms":0}`, 200)), &held); err != nil {
		t.Fatal(err)
	}
	do("/v1/decide", apitest.Of("tokens"), 429)
	_, top := get(t, base+"/v1/top-keys")
	if err := json.Unmarshal([]byte(top), &refused); err != nil {
		t.Fatal(err)
	}
	hash := refused.Limits[0].Keys[0].Hash
	do("/v1/force", apitest.One("tokens", `"n":7`), 200)
	do("/v1/force", apitest.One("unknown", `"n":7`), 422) // changes nothing
	do("/v1/block", apitest.One("blocked", `"for_ms":90000`), 200)
	do("/v1/reset", apitest.One("blocked", ""), 204)
	do("/v1/reset", `{"key":"secret-key"}`, 204)
	do("/v1/settle", fmt.Sprintf(`{"id":%q,"used":0}`, held.ID), 204)

	lines := tracedLines(t, log.String(), "write")
	want := []traced{
		{Action: "force", Units: 7, Limits: []string{"tokens"}},
		{Action: "block", For: "1m30s", Limits: []string{"blocked"}},
		{Action: "reset", Limits: []string{"blocked"}},
		{Action: "reset", Limits: []string{"tokens", "day"}},
		{Action: "release", Limits: []string{"tokens", "calls"}},
	}
	for i, line := range lines {
		if _, _, err := net.SplitHostPort(line.From); err != nil {
			t.Errorf("it comes from %q", line.From)
		}
		if !slices.Equal(line.Hashes, []string{hash}) || hash == "" || line.Outcome != "done" ||
			line.Level != "INFO" {
			t.Errorf("%+v, want the hash %s", line, hash)
		}
		lines[i].From, lines[i].Hashes, lines[i].Outcome = "", nil, ""
		lines[i].Msg, lines[i].Level = "", ""
	}
	if fmt.Sprint(lines) != fmt.Sprint(want) {
		t.Errorf("got\n%+v, want\n%+v", lines, want)
	}
	checkSecrets(t, log.String(), held.ID)

	base, log, _ = start(t, "--on-failure=closed", "--limit=tokens=2/1h",
		"--store=redis://"+unusedAddr(t))
	do("/v1/force", apitest.One("tokens", `"n":7`), 503)
	lines = tracedLines(t, log.String(), "write")
	if len(lines) != 1 || lines[0].Outcome == "done" || lines[0].Outcome == "" ||
		len(lines[0].Hashes) != 1 {
		t.Errorf("of a write that failed: %+v", lines)
	}
	checkSecrets(t, log.String())
}

// TestPageLeavesAHash: an action on the page leaves the hash of the key without a list of keys too.
func TestPageLeavesAHash(t *testing.T) {
	base, log, _ := start(t, "--limit=tokens=2/1h")
	res, err := http.Get(base + "/dashboard/")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	encoded := base64.RawURLEncoding.EncodeToString([]byte(apitest.Secret))
	form := url.Values{"token": {pageToken.FindStringSubmatch(string(text))[1]},
		"action": {"reset"}, "limit": {"tokens"}, "key": {encoded}, "query": {encoded},
		"confirmed": {"yes"}}
	if res, text := visit(t, http.MethodPost, base+"/dashboard/act", apitest.Token, form); res.
		StatusCode != http.StatusOK {
		t.Fatalf("%d %s", res.StatusCode, text)
	}
	post(t, base+"/v1/reset", `{"key":"secret-key"}`)
	lines := tracedLines(t, log.String(), "write")
	if len(lines) != 1 || !strings.Contains(log.String(), `"key_name":"`+lines[0].Hashes[0]) {
		t.Errorf("no such hash of the page: %s", log)
	}
	checkSecrets(t, log.String())
}

// TestRefusalsOfCredentials: the log has what a request without a right wanted, once a second.
func TestRefusalsOfCredentials(t *testing.T) {
	const reader = "a-token-to-read-with"
	key := base64.RawURLEncoding.EncodeToString([]byte(apitest.Secret))
	hashed := []string{"any"}
	for _, tt := range []struct {
		path, token, body string
		want              traced
	}{
		{"/v1/force", "", apitest.One("tokens", `"n":7`),
			traced{Status: 401, Path: "/v1/force", Limits: []string{"tokens"}, Hashes: hashed}},
		{"/v1/block", "another-token-of-nobody", apitest.One("tokens", `"for_ms":7`),
			traced{Status: 401, Path: "/v1/block", Token: true, Limits: []string{"tokens"},
				Hashes: hashed}},
		{"/v1/reset", reader, apitest.One("unknown", ""),
			traced{Status: 403, Path: "/v1/reset", Token: true, Limits: []string{},
				Hashes: hashed}},
		{"/v1/reset", "", `{"key":`, traced{Status: 401, Path: "/v1/reset", Limits: []string{}}},
		{"/v1/reset", "", strings.Repeat("a", httpapi.MaxBody+1),
			traced{Status: 401, Path: "/v1/reset", Limits: []string{}}},
		{"/metrics", "", "", traced{Status: 401, Path: "/metrics", Limits: []string{}}},
		{"/v1/explain", "", `{"descriptor":{"key":"secret-key"}}`,
			traced{Status: 401, Path: "/v1/explain", Limits: []string{}}},
		{"/dashboard/secret-key/act", "", "limit=tokens&key=" + key,
			traced{Status: 401, Path: "/dashboard/", Limits: []string{"tokens"}, Hashes: hashed}},
	} {
		base, log, _ := start(t, "--limit=tokens=2/1h",
			"--read-token-file="+apitest.TokenFile(t, reader))
		req, err := http.NewRequestWithContext(
			t.Context(), http.MethodPost, base+tt.path, strings.NewReader(tt.body))
		if err != nil {
			t.Fatal(err)
		}
		if tt.token != "" {
			req.Header.Set("Authorization", "Bearer "+tt.token)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		lines := tracedLines(t, log.String(), "request refused: it has no right")
		if res.StatusCode != tt.want.Status || len(lines) != 1 {
			t.Errorf("%s: %d, %d lines: %s", tt.path, res.StatusCode, len(lines), log)
			continue
		}
		line := lines[0]
		if len(line.Hashes) != len(tt.want.Hashes) || slices.Contains(line.Hashes, "") {
			t.Errorf("%s: hashes %q", tt.path, line.Hashes)
		}
		if !strings.HasPrefix(line.From, "127.0.0.1:") || line.Level != "WARN" {
			t.Errorf("%s: %+v", tt.path, line)
		}
		line.From, line.Msg, line.Level, line.Hashes = "", "", "", tt.want.Hashes
		if fmt.Sprintf("%+v", line) != fmt.Sprintf("%+v", tt.want) {
			t.Errorf("%s: %+v, want %+v", tt.path, line, tt.want)
		}
		checkSecrets(t, log.String(), "another-token", reader)
	}
	// Without tokens nobody may write.
	base, log, _ := start(t, "--limit=tokens=2/1h", "--write-token-file=")
	post(t, base+"/v1/reset", apitest.One("tokens", ""))
	if lines := tracedLines(t, log.String(),
		"request refused: it has no right"); len(lines) != 1 || lines[0].Status != 403 {
		t.Errorf("without tokens: %s", log)
	}
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

// TestRetryAfterOfFailures: each 503 says when to try again, and no other status does.
func TestRetryAfterOfFailures(t *testing.T) {
	healthy, _, _ := start(t, "--limit=tokens=9/1h")
	for _, path := range []string{"/readyz", "/nothing"} {
		res, err := http.Get(healthy + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if got := res.Header.Get("Retry-After"); got != "" {
			t.Errorf("%s: %d, Retry-After %q", path, res.StatusCode, got)
		}
	}
	_, answer := post(t, healthy+"/v1/decide", apitest.Hold("tokens"))
	var held struct{ ID string }
	if err := json.Unmarshal([]byte(answer), &held); err != nil {
		t.Fatal(err)
	}
	for pause, want := range map[string]string{"500ms": "1", "2500ms": "3"} {
		base, _, _ := start(t, "--limit=tokens=9/1h", "--on-failure=closed", "--block=blocked=1h",
			"--breaker-pause="+pause, "--entry=key=client", "--store=redis://"+unusedAddr(t))
		for _, tt := range []struct{ path, body string }{
			{"/v1/decide", apitest.Of("tokens")}, {"/v1/decide", `{"descriptor":{"key":"a"}}`},
			{"/v1/decide", apitest.Hold("tokens")}, {"/v1/peek", apitest.Of("tokens")},
			{"/v1/settle", fmt.Sprintf(`{"id":%q}`, held.ID)},
			{"/v1/renew", fmt.Sprintf(`{"id":%q}`, held.ID)},
			{"/v1/force", apitest.One("tokens", `"n":1`)},
			{"/v1/block", apitest.One("blocked", `"for_ms":1`)},
			{"/v1/reset", apitest.One("tokens", "")}, {"/v1/check", ""}, {"/readyz", ""},
		} {
			method := http.MethodPost
			if tt.body == "" {
				method = http.MethodGet
			}
			req, err := http.NewRequestWithContext(
				t.Context(), method, base+tt.path, strings.NewReader(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+apitest.Token)
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			if got := res.Header.Get("Retry-After"); got != want ||
				res.StatusCode != http.StatusServiceUnavailable {
				t.Errorf("%s: %d, Retry-After %q, want %s", tt.path, res.StatusCode, got, want)
			}
		}
	}
}
