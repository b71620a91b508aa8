// Package daemon runs the command of cmd/ratelimit as a process, for tests on servers.
package daemon

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/integration/servers"
)

// RunRefused runs the daemon, which must refuse to start, and returns its output. On a busy machine
// the server may not answer the probe in time; then the daemon starts, and RunRefused tries again.
func RunRefused(t *testing.T, bin string, args ...string) string {
	t.Helper()
	args = append([]string{"serve", "--addr=127.0.0.1:0", "--on-failure=closed"}, args...)
	const tries, longest = 3, 10 * time.Second
	var out []byte
	var err error
	for range tries {
		ctx, cancel := context.WithTimeout(t.Context(), longest)
		cmd := exec.CommandContext(ctx, bin, args...)
		cmd.Env = environment()
		out, err = cmd.CombinedOutput()
		started := ctx.Err() != nil
		cancel()
		if !started {
			break
		}
	}
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("%v, %s; want exit code 1", err, out)
	}
	return string(out)
}

// A Daemon is a process of "ratelimit serve".
type Daemon struct {
	url    string
	client *http.Client
	cmd    *exec.Cmd
	ended  func() error // waits for the end
	killed atomic.Bool

	mu  sync.Mutex
	log bytes.Buffer
}

// Logged returns what d has logged so far.
func (d *Daemon) Logged() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.log.String()
}

// Build returns the path of the command's binary, which is built once for all tests.
func Build(t testing.TB) string { return BuildOf(t, "cmd/ratelimit") }

// BuildOf is Build for a program at another directory of the repository.
func BuildOf(t testing.TB, dir string) string {
	t.Helper()
	build, _ := builds.LoadOrStore(dir, sync.OnceValues(func() (string, error) {
		return build(dir)
	}))
	bin, err := build.(func() (string, error))()
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

var builds sync.Map // from directories to functions that build once

func build(dir string) (string, error) {
	temporary, err := os.MkdirTemp("", "ratelimit-daemon-")
	if err != nil {
		return "", err
	}
	servers.AtEnd(func() error { return os.RemoveAll(temporary) })
	bin := filepath.Join(temporary, "ratelimit")
	build := exec.Command("go", "build", "-ldflags=-s -w", // links in half of the time
		"-o", bin, "github.com/truewindow/ratelimit/"+dir)
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return bin, nil
}

// Token is the write token of daemons. Post sends it.
const Token = "a-token-of-the-tests"

// environment returns that of this process without the settings of the tests on servers, which the
// daemon does not know.
func environment() []string {
	return slices.DeleteFunc(os.Environ(),
		func(pair string) bool { return strings.HasPrefix(pair, "RATELIMIT_") })
}

// Start starts bin on a free port. At the end of the test it gets SIGTERM, and must exit with code
// 0.
func Start(t testing.TB, bin string, args ...string) *Daemon {
	t.Helper()
	tokens := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(tokens, []byte(Token), 0o600); err != nil {
		t.Fatal(err)
	}
	args = append([]string{"serve", "--addr=127.0.0.1:0", "--log-format=json",
		"--write-token-file=" + tokens}, args...)
	cmd := exec.Command(bin, args...)
	cmd.Env = environment()
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	d := &Daemon{cmd: cmd, client: &http.Client{Timeout: 10 * time.Second, Transport: transport}}
	url, read := make(chan string, 1), make(chan struct{})
	go func() {
		defer close(read)
		defer close(url)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			d.mu.Lock()
			d.log.Write(append(lines.Bytes(), '\n'))
			d.mu.Unlock()
			var line struct{ Msg, Addr string }
			if err := json.Unmarshal(lines.Bytes(), &line); err == nil && line.Msg == "listening" {
				url <- "http://" + line.Addr
			}
		}
	}()
	d.ended = sync.OnceValue(func() error {
		<-read
		return cmd.Wait()
	})
	t.Cleanup(func() {
		d.client.CloseIdleConnections()
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := d.ended(); err != nil && !d.killed.Load() {
			t.Errorf("ratelimit serve: %v", err)
		}
		if t.Failed() {
			t.Logf("ratelimit serve logged:\n%s", d.Logged())
		}
	})
	if d.url = <-url; d.url == "" {
		t.Fatal("ratelimit serve did not listen")
	}
	return d
}

// Port returns the port on which d listens.
func (d *Daemon) Port() string { return d.url[strings.LastIndexByte(d.url, ':')+1:] }

// URL returns the address of d without a path.
func (d *Daemon) URL() string { return d.url }

// PID returns the id of the process.
func (d *Daemon) PID() int { return d.cmd.Process.Pid }

// Kill ends d at once.
func (d *Daemon) Kill(t *testing.T) {
	t.Helper()
	d.killed.Store(true)
	d.Signal(t, os.Kill)
	_ = d.ended() // it was killed
}

// Signal sends a signal to d.
func (d *Daemon) Signal(t *testing.T, signal os.Signal) {
	t.Helper()
	if err := d.cmd.Process.Signal(signal); err != nil {
		t.Error(err)
	}
}

// Wait waits until d has ended, and returns its exit code.
func (d *Daemon) Wait() int {
	_ = d.ended() // the exit code says the same
	return d.cmd.ProcessState.ExitCode()
}

// Post returns the status and the body of the answer, and how long it took.
func (d *Daemon) Post(
	t *testing.T, path, key string,
) (status int, body string, took time.Duration) {
	t.Helper()
	return d.PostJSON(t, path, fmt.Sprintf(`{"key":%q}`, key))
}

// PostJSON is Post with the whole body of the request.
func (d *Daemon) PostJSON(
	t *testing.T, path, request string,
) (status int, body string, took time.Duration) {
	t.Helper()
	began := time.Now()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, d.url+path,
		strings.NewReader(request))
	if err != nil {
		t.Error(err)
		return 0, "", 0
	}
	req.Header.Set("Authorization", "Bearer "+Token)
	res, err := d.client.Do(req)
	if err != nil {
		t.Error(err)
		return 0, "", 0
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Error(err)
	}
	return res.StatusCode, string(b), time.Since(began)
}

// Get returns the status and the body of the answer to a GET.
func (d *Daemon) Get(t *testing.T, path string) (status int, body string) {
	t.Helper()
	res, err := d.client.Get(d.url + path)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Error(err)
	}
	return res.StatusCode, string(b)
}

// WatchHealth requests /healthz of d, which needs no store, again and again until stop is called.
// stop returns the longest time that an answer took: the delay that comes from the machine.
func (d *Daemon) WatchHealth(t *testing.T) (stop func() time.Duration) {
	done, longest := make(chan struct{}), make(chan time.Duration)
	go func() {
		slowest := time.Duration(0)
		for {
			select {
			case <-done:
				longest <- slowest
				return
			case <-time.After(10 * time.Millisecond):
			}
			began := time.Now()
			if res, err := d.client.Get(d.url + "/healthz"); err == nil {
				res.Body.Close()
				slowest = max(slowest, time.Since(began))
			}
		}
	}()
	stop = sync.OnceValue(func() time.Duration {
		close(done)
		return <-longest
	})
	t.Cleanup(func() { stop() })
	return stop
}

// AwaitStore waits until the store of d decides again, and returns how long that took.
func (d *Daemon) AwaitStore(t *testing.T, key string) time.Duration {
	t.Helper()
	const longest = servers.FaultTimeout
	for began := time.Now(); time.Since(began) < longest; time.Sleep(10 * time.Millisecond) {
		if _, body, _ := d.Post(t, "/v1/peek", key); strings.Contains(body, `"source":"store"`) {
			return time.Since(began)
		}
	}
	t.Fatalf("the store is unavailable %v after its server has recovered", longest)
	return 0
}
