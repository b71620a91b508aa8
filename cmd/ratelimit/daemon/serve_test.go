package daemon

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alecthomas/kong"

	_ "github.com/truewindow/ratelimit/backend/redis"
)

// parseServe returns what kong makes of the arguments of a command.
func parseServe(t *testing.T, args []string) *serveCmd {
	t.Helper()
	var line struct {
		Serve serveCmd `cmd:"" envprefix:"RATELIMIT_"`
	}
	parser, err := kong.New(&line)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.Parse(args); err != nil {
		t.Fatal(err)
	}
	return &line.Serve
}

// testServer returns a server whose log and counts nobody reads.
func testServer(handler http.Handler) *http.Server {
	return newServer(handler, new(failedConnections), discard)
}

// syncBuffer is a bytes.Buffer for several goroutines.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// testToken is the write token of the daemons that start starts. post sends it.
const testToken = "a-token-of-the-tests"

// tokenFile writes a file of tokens and returns its path.
func tokenFile(t *testing.T, tokens string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(path, []byte(tokens), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// start calls run with "serve" and args on a free port. It returns the daemon's address, its log,
// and a function that ends it and returns its exit code.
func start(t *testing.T, args ...string) (url string, log *syncBuffer, stop func() int) {
	t.Helper()
	log = new(syncBuffer)
	reader, writer := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	code := make(chan int, 1)
	args = append([]string{"serve", "--addr=127.0.0.1:0", "--log-format=json",
		"--write-token-file=" + tokenFile(t, testToken)}, args...)
	go func() {
		defer writer.Close()
		code <- run(ctx, args, io.Discard, io.MultiWriter(log, writer))
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
	req.Header.Set("Authorization", "Bearer "+testToken)
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
	if got := log.String(); strings.Contains(got, secret) ||
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
	log := new(syncBuffer)
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
// according to its policy.
func TestServeWhileUnavailable(t *testing.T) {
	for _, tt := range []struct {
		name     string
		args     []string
		statuses []int  // of takes of one unit each
		body     string // of the first
		log      string
	}{
		{"closed", []string{"--on-failure=closed"}, []int{503, 503, 503}, "#ErrUnavailable",
			"request undecided"},
		{"open", []string{"--on-failure=open", "--limit=1/1h"}, []int{200, 200, 200},
			`"allowed":true,"source":"open","limit":1,`, "is not called"},
		{"local", []string{"--on-failure=local", "--instances=3", "--limit=7/1h"},
			[]int{200, 200, 429}, `"allowed":true,"source":"local","limit":2,"remaining":1`,
			"deciding locally"},
		{"local, several", []string{"--on-failure=local", "--instances=3", "--limit=7/1h,4/24h"},
			[]int{200, 429, 429}, `"source":"local","limit":1,`, "deciding locally"},
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
			if strings.Contains(got, secret) {
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
		{[]string{"serve", "--store=postgres://user:secret-key@localhost"}, exitError, "redis://"},
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
			if len(tt.args) > 1 && strings.Contains(got, secret) {
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

// pipeListener accepts connections that stay in the process.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// get sends a request and returns the answer.
func (l *pipeListener) get() (string, error) {
	client, server := net.Pipe()
	l.conns <- server
	if _, err := fmt.Fprint(client,
		"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(client)
	return string(answer), err
}

func TestShutdown(t *testing.T) {
	for name, tt := range map[string]struct {
		handler time.Duration // how long the handler goes on after the signal
		err     error
		after   time.Duration // how long after the signal serve returns
		answer  string
	}{
		"in time": {handler: shutdownTimeout - time.Second, after: shutdownTimeout - time.Second,
			answer: "HTTP/1.1 200 OK"},
		"too late": {handler: shutdownTimeout + time.Second, after: shutdownTimeout,
			err: context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				listener := newPipeListener()
				began, ended := make(chan struct{}), make(chan struct{})
				handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
					defer close(ended)
					close(began)
					time.Sleep(tt.handler)
				})
				ctx, cancel := context.WithCancel(t.Context())
				answer := make(chan string, 1)
				go func() {
					got, _ := listener.get()
					answer <- got
				}()
				go func() {
					<-began
					cancel()
				}()
				signal := time.Now()
				err := serve(ctx, []server{{testServer(handler), listener}},
					newReadiness(nil), 0, discard)
				if !errors.Is(err, tt.err) || (err != nil) != (tt.err != nil) {
					t.Errorf("error %v, want %v", err, tt.err)
				}
				// Shutdown polls, at intervals of up to half a second.
				if took := time.Since(signal); took < tt.after || took > tt.after+time.Second {
					t.Errorf("serve returned after %v, want %v", took, tt.after)
				}
				if got := <-answer; !strings.HasPrefix(got, tt.answer) ||
					tt.answer == "" && got != "" {
					t.Errorf("answer %q, want %q", got, tt.answer)
				}
				<-ended
			})
		})
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
