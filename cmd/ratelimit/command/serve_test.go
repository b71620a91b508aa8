package command

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"

	_ "github.com/truewindow/ratelimit/backend/redis"
)

// start calls run with "serve" and args on a free port. It returns the daemon's address, its log,
// and a function that ends it and returns its exit code.
func start(t *testing.T, args ...string) (url string, log *apitest.Log, stop func() int) {
	t.Helper()
	return startTo(t, io.Discard, args...)
}

// startTo is start with a standard output.
func startTo(
	t *testing.T, stdout io.Writer, args ...string,
) (url string, log *apitest.Log, stop func() int) {
	t.Helper()
	log = new(apitest.Log)
	reader, writer := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	code := make(chan int, 1)
	args = append([]string{"serve", "--addr=127.0.0.1:0", "--log-format=json",
		"--write-token-file=" + apitest.TokenFile(t, apitest.Token)}, args...)
	go func() {
		defer writer.Close()
		code <- run(ctx, args, stdout, io.MultiWriter(log, writer))
	}()
	stop = sync.OnceValue(func() int {
		cancel()
		return <-code
	})
	t.Cleanup(func() { stop() })
	lines := bufio.NewScanner(reader)
	for lines.Scan() {
		var line struct{ Msg, Addr string }
		if err := json.Unmarshal(lines.Bytes(), &line); err == nil && line.Msg == "listening" {
			go func() { _, _ = io.Copy(io.Discard, reader) }()
			return "http://" + line.Addr, log, stop
		}
	}
	t.Fatalf("it ended with code %d: %s", stop(), log)
	return "", nil, nil
}

func post(t *testing.T, url, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url,
		strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+apitest.Token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

func TestServe(t *testing.T) {
	url, log, stop := start(t, "--limit=2/1h,day=5/24h")
	for i, want := range []int{200, 200, 429} {
		if status, body := post(t, url+"/v1/decide", `{"key":"secret-key"}`); status != want {
			t.Errorf("take %d: %d %s", i, status, body)
		}
	}
	if status, body := post(t, url+"/v1/reset",
		`{"key":"secret-key"}`); status != http.StatusNoContent {
		t.Errorf("reset: %d %s", status, body)
	}
	if status, body := post(t, url+"/v1/decide",
		`{"key":"secret-key","n":2}`); status != http.StatusOK {
		t.Errorf("take after the reset: %d %s", status, body)
	}
	res, err := http.Get(url + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Errorf("healthz: %d", res.StatusCode)
	}
	if code := stop(); code != exitOK {
		t.Errorf("exit code %d: %s", code, log)
	}
	if got := log.String(); strings.Contains(got, apitest.Secret) ||
		!strings.Contains(got, `"limits":"[1h0m0s=2/1h0m0s day=5/24h0m0s]"`) {
		t.Errorf("log: %s", got)
	}
	if _, err := net.DialTimeout("tcp", strings.TrimPrefix(url, "http://"),
		time.Second); err == nil {
		t.Error("it still listens")
	}
}

func TestServeFromEnvironment(t *testing.T) {
	t.Setenv("RATELIMIT_LIMIT", "burst=1/1h,3/24h")
	t.Setenv("RATELIMIT_STORE", "memory:?max-keys=2")
	t.Setenv("RATELIMIT_ON_FAILURE", "")
	t.Setenv("RATELIMIT_TOP_KEYS", "1")
	t.Setenv("RATELIMIT_TOP_KEYS_PLAIN", "true")
	t.Setenv("RATELIMIT_LOG_LEVEL", "error")
	t.Setenv("RATELIMIT_ADDR", "no address")
	log := new(apitest.Log)
	if code := run(t.Context(), []string{"serve"}, io.Discard, log); code != exitError ||
		!strings.Contains(log.String(), "no address") {
		t.Errorf("RATELIMIT_ADDR: exit code %d: %s", code, log)
	}
	url, _, _ := start(t, "--log-level=info")
	status, body := post(t, url+"/v1/decide", `{"key":"first"}`)
	if status != http.StatusOK ||
		!strings.Contains(body,
			`"name":"burst","window_ms":3600000,"allowed":true,"source":"store","limit":1,`+
				`"remaining":0,`) || !strings.Contains(body, `"name":"24h0m0s"`) {
		t.Errorf("%d %s", status, body)
	}
	if status, body := post(t, url+"/v1/decide",
		`{"key":"second"}`); status != http.StatusServiceUnavailable {
		t.Errorf("RATELIMIT_STORE: %d %s", status, body)
	}
	if status, body := post(t, url+"/v1/decide",
		`{"key":"first"}`); status != http.StatusTooManyRequests ||
		!strings.HasPrefix(body, `{"name":"burst",`) {
		t.Errorf("RATELIMIT_LIMIT: %d %s", status, body)
	}
	if status, body := get(t, url+"/v1/top-keys"); status != http.StatusOK ||
		!strings.Contains(body, `"key":"first"`) {
		t.Errorf("RATELIMIT_TOP_KEYS, RATELIMIT_TOP_KEYS_PLAIN: %d %s", status, body)
	}
}

var opensWithCause = regexp.MustCompile(`"the breaker is open: .*"error":".*connection refused"`)

// TestServeWhileUnavailable: the daemon starts even if the store is unavailable, and answers
// according to its policy, which its page says.
func TestServeWhileUnavailable(t *testing.T) {
	const inThirds = "each of 3 processes decides by itself, within 1/3 of each limit, " +
		"and tries it again"
	for _, tt := range []struct {
		name     string
		args     []string
		statuses []int  // of takes of one unit each
		body     string // of the first
		log      string
		page     string
	}{
		{"closed", []string{"--on-failure=closed"}, []int{503, 503, 503}, "#ErrUnavailable",
			"request undecided", "calls are errors"},
		{"open", []string{"--on-failure=open", "--limit=1/1h"}, []int{200, 200, 200},
			`"allowed":true,"source":"open","limit":1,`, "is not called",
			"calls are admitted, and count nothing"},
		{"local", []string{"--on-failure=local", "--instances=3", "--limit=7/1h"},
			[]int{200, 200, 429}, `"allowed":true,"source":"local","limit":2,"remaining":1`,
			"deciding locally", inThirds},
		{"local, several", []string{"--on-failure=local", "--instances=3", "--limit=7/1h,4/24h"},
			[]int{200, 429, 429}, `"source":"local","limit":1,`, "deciding locally",
			inThirds},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args := append(tt.args, "--store=redis://user:secret-key@"+unusedAddr(t),
				"--breaker-failures=1", "--breaker-pause=1h")
			began := time.Now()
			url, log, stop := start(t, args...)
			took := time.Since(began)
			for tries := 1; took > 900*time.Millisecond && tries < 5; tries++ { // on a busy machine
				stop()
				began = time.Now()
				url, log, stop = start(t, args...)
				took = time.Since(began)
			}
			if took > 900*time.Millisecond {
				t.Errorf("it took %v to start", took)
			}
			for i, want := range tt.statuses {
				status, body := post(t, url+"/v1/decide", `{"key":"secret-key"}`)
				if status != want || i == 0 && !strings.Contains(body, tt.body) {
					t.Errorf("take %d: %d %s", i, status, body)
				}
			}
			if status, body := post(t, url+"/v1/reset",
				`{"key":"secret-key"}`); status != http.StatusServiceUnavailable {
				t.Errorf("nothing was reset, and the answer is %d %s", status, body)
			}
			res, err := http.Get(url + "/healthz")
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			if res.StatusCode != http.StatusOK {
				t.Errorf("healthz: %d", res.StatusCode)
			}
			_, page := get(t, url+"/dashboard/")
			outage := regexp.MustCompile(`(?s)<div id="problems" [^>]*>\s*<p class="says bad">` +
				`Redis has been unavailable since <time [^>]*>[^<]*</time>: ` + tt.page +
				`\.</p>\s*</div>`)
			if !outage.MatchString(page) || strings.Contains(page, "Deciding on") ||
				!strings.Contains(page, "<title>● Redis has been unavailable</title>") {
				t.Errorf("the page does not say what an outage does: %s", page)
			}
			if code := stop(); code != exitOK {
				t.Errorf("exit code %d", code)
			}
			got := log.String()
			for _, want := range []string{"the store cannot decide",
				"the breaker is open: the store fails and is not called", tt.log} {
				if !strings.Contains(got, want) {
					t.Errorf("the log has no %q: %s", want, got)
				}
			}
			if strings.Contains(got, apitest.Secret) {
				t.Errorf("log: %s", got)
			}
			if !opensWithCause.MatchString(got) {
				t.Errorf("the log does not say why the breaker opened: %s", got)
			}
		})
	}
}

func unusedAddr(t *testing.T) (addr string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// TestServeFullMemory: the memory store is never unavailable, but it can be full. Then no policy
// admits a new key.
func TestServeFullMemory(t *testing.T) {
	for _, policy := range []string{"", "closed", "open", "local"} {
		url, _, _ := start(t, "--store=memory:?max-keys=1", "--on-failure="+policy)
		if status, body := post(t, url+"/v1/decide", `{"key":"first"}`); status != http.StatusOK {
			t.Errorf("%d %s", status, body)
		}
		if status, body := post(t, url+"/v1/decide", `{"key":"second"}`); status != 503 ||
			!strings.Contains(body, "ErrCapacity") {
			t.Errorf("policy %q: %d %s, want 503", policy, status, body)
		}
	}
}

func TestServeRefusesToStart(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	t.Setenv("RATELIMIT_ON_FAILURE", "closed")
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{}, exitUsage, "serve"},
		{[]string{"secret-key"}, exitUsage, ""},
		{[]string{"serve", "--limit=10"}, exitUsage, "--limit: ratelimit: invalid limit"},
		{[]string{"serve", "--limit="}, exitError, "no limit"},
		{[]string{"serve", "--limit=10/1m", "--limit=0/1m"}, exitUsage, "Max 0"},
		{[]string{"serve", "--limit=10/1m,20/1m"}, exitError, "--limit NAME=MAX/WINDOW"},
		{[]string{"serve", "--store=memory:?max-keys=many"}, exitError, `"max-keys"`},
		{[]string{"serve", "--store=redis://localhost?timeout=-1s"}, exitError, `"timeout"`},
		{[]string{"serve", "--store=redis://:secret-key@localhost", "--on-failure="}, exitUsage,
			"local, with --instances=N"},
		{[]string{"serve", "--store=redis://:secret-key@localhost", "--on-failure=perhaps"},
			exitUsage, "not closed, open or local"},
		{[]string{"serve", "--store=redis://:secret-key@localhost", "--on-failure=local"},
			exitUsage, "needs --instances=N"},
		{[]string{"serve", "--store=redis://:secret-key@localhost", "--on-failure=local",
			"--instances=-1"}, exitUsage, "needs --instances=N"},
		{[]string{"serve", "--lease=2%"}, exitUsage,
			"--lease needs a store on a server"},
		{[]string{"serve", "--lease=0.02"}, exitUsage,
			"--lease is a percentage such as 2%"},
		{[]string{"serve", "--store=redis://:secret-key@localhost", "--breaker-failures=-1"},
			exitError, "Failures"},
		{[]string{"serve", "--store=redis://:secret-key@localhost", "--breaker-pause=-1s"},
			exitError, "Pause"},
		{[]string{"serve", "--store=redis://localhost?prefix={}"}, exitError, "Prefix"},
		{[]string{"serve", "--top-keys=-1"}, exitUsage, "--top-keys=-1 is not between 0 and"},
		{[]string{"serve", "--top-keys=1000000"}, exitUsage, "--top-keys=1000000 is not between"},
		{[]string{"serve", "--top-keys-plain"}, exitUsage, "needs --top-keys=N"},
		{[]string{"serve", "--log-format=xml"}, exitUsage, "--log-format"},
		{[]string{"serve", "--log-level=loud"}, exitUsage, "--log-level"},
		{[]string{"serve", "--addr=" + taken.Addr().String()}, exitError, "address already in use"},
		{[]string{"serve", "--store=cassandra://user:secret-key@localhost"}, exitError, "redis://"},
		{[]string{"serve", "--store=redis:secret-key:6379"}, exitError, "no host"},
		{[]string{"serve", "--store=redis+ring://user:secret-key@localhost"},
			exitError, "redis://"},
		{[]string{"serve", "--store=redis://user:%zzsecret-key@localhost"}, exitError,
			"percent-encoded"},
		{[]string{"serve", "--store=redis://user:/secret-key@localhost"}, exitError, "%40"},
		{[]string{"serve", "--store=redis://user:12/secret-key@localhost"}, exitError, "%40"},
		{[]string{"serve", "--store=redis://user:12?secret-key@localhost"}, exitError, "%40"},
		{[]string{"serve", "--store=redis://user:12#secret-key@localhost"}, exitError, "%40"},
		{[]string{"serve", "--store=redis://:secret-key@localhost/first"}, exitError,
			"database is not a number"},
		{[]string{"serve", "--store=redis+cluster://:secret-key@localhost?colour=red"},
			exitError, "colour"},
	} {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			var stderr bytes.Buffer
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if code := run(ctx, tt.args, io.Discard, &stderr); code != tt.code {
				t.Errorf("exit code %d, want %d: %s", code, tt.code, &stderr)
			}
			got := stderr.String()
			if !strings.Contains(got, tt.want) || !strings.HasPrefix(got, "error: ") {
				t.Errorf("%q does not contain %q", got, tt.want)
			}
			if len(tt.args) > 1 && strings.Contains(got, apitest.Secret) {
				t.Errorf("the password is shown: %s", got)
			}
		})
	}
}

// TestReplayMoved: replay is a command of its own, and no help names it.
func TestReplayMoved(t *testing.T) {
	code, stdout, stderr := command(t, "replay", "--log=access.log", "--limit=10/1m")
	if code != exitUsage || stdout != "" || strings.Count(stderr, "\n") != 1 ||
		!strings.Contains(stderr, "cmd/ratelimit-replay@latest") {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
	if _, help, _ := command(t, "--help"); strings.Contains(help, "replay") {
		t.Error(help)
	}
}

func TestHelpAndVersion(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{[]string{"--help"}, []string{"serve"}},
		{[]string{"--version"}, []string{"\n"}},
		{[]string{"serve", "--help"}, []string{
			"$RATELIMIT_STORE", "$RATELIMIT_LIMIT", "$RATELIMIT_ADDR", "$RATELIMIT_HOST",
			"$RATELIMIT_ON_FAILURE", "$RATELIMIT_INSTANCES", "$RATELIMIT_BREAKER_FAILURES",
			"$RATELIMIT_BREAKER_PAUSE", "$RATELIMIT_LOG_FORMAT", "$RATELIMIT_LOG_LEVEL", "10/1m",
			"127.0.0.1:8080", "$RATELIMIT_IN_FLIGHT", "$RATELIMIT_BLOCK",
			"$RATELIMIT_TOP_KEYS", "$RATELIMIT_TOP_KEYS_PLAIN",
		}},
	} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), tt.args, &stdout, &stderr); code != exitOK || stderr.Len() > 0 {
			t.Errorf("%v: exit code %d, %s", tt.args, code, &stderr)
		}
		for _, want := range tt.want {
			if !strings.Contains(stdout.String(), want) {
				t.Errorf("%v does not show %q:\n%s", tt.args, want, &stdout)
			}
		}
	}
}

// TestServeIgnoresHangups: SIGHUP ends neither the daemon nor, here, the test.
func TestServeIgnoresHangups(t *testing.T) {
	url, log, stop := start(t)
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if err := self.Signal(syscall.SIGHUP); err != nil {
		t.Skip(err) // on Windows
	}
	for strings.Count(log.String(), "the configuration is loaded") < 2 { // the credentials are
		runtime.Gosched()
	}
	if status, body := get(t, url+"/healthz"); status != http.StatusOK {
		t.Errorf("%d %s", status, body)
	}
	if code := stop(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}

// TestServeWarnsOfNoShare: a limit below --instances is named at the start, and no other.
func TestServeWarnsOfNoShare(t *testing.T) {
	for _, tt := range []struct {
		policy string
		want   int
	}{{"local", 2}, {"closed", 0}} {
		_, log, stop := start(t, "--store=redis://"+unusedAddr(t), "--on-failure="+tt.policy,
			"--instances=4", "--limit=few=3/1h,enough=4/1h,3/1m", "--in-flight=calls=4/1h")
		stop()
		got := log.String()
		if n := strings.Count(got, "no process has a share"); n != tt.want {
			t.Errorf("%s: %d warnings, want %d: %s", tt.policy, n, tt.want, got)
		}
		for _, name := range []string{`"limit":"few"`, `"limit":"1m0s"`} {
			if tt.want > 0 && !strings.Contains(got, name) {
				t.Errorf("no %s: %s", name, got)
			}
		}
	}
}
