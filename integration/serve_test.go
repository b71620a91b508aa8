package integration

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// A daemon is a process of "ratelimit serve".
type daemon struct {
	url    string
	client *http.Client

	mu  sync.Mutex
	log bytes.Buffer
}

// logged returns what d has logged so far.
func (d *daemon) logged() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.log.String()
}

// buildDaemon builds the command and returns the path of the binary.
func buildDaemon(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "ratelimit")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "../cmd/ratelimit").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return bin
}

// startDaemon starts bin on a free port. At the end of the test it is asked to stop, and must do so in good order.
func startDaemon(t *testing.T, bin string, args ...string) *daemon {
	t.Helper()
	args = append([]string{"serve", "--addr=127.0.0.1:0", "--log-format=json"}, args...)
	cmd := exec.Command(bin, args...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	d := &daemon{client: &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 100}}}
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
	t.Cleanup(func() {
		d.client.CloseIdleConnections()
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-read
		if err := cmd.Wait(); err != nil {
			t.Errorf("ratelimit serve: %v", err)
		}
		if t.Failed() {
			t.Logf("ratelimit serve logged:\n%s", d.logged())
		}
	})
	if d.url = <-url; d.url == "" {
		t.Fatal("ratelimit serve did not listen")
	}
	return d
}

// post returns the status and the body of the answer, and how long it took.
func (d *daemon) post(t *testing.T, path, key string) (status int, body string, took time.Duration) {
	t.Helper()
	began := time.Now()
	res, err := d.client.Post(d.url+path, "application/json", strings.NewReader(fmt.Sprintf(`{"key":%q}`, key)))
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

// awaitStore waits until the store of d decides again, and returns for how long.
func (d *daemon) awaitStore(t *testing.T, key string) time.Duration {
	t.Helper()
	const longest = 10 * time.Second
	for began := time.Now(); time.Since(began) < longest; time.Sleep(10 * time.Millisecond) {
		if _, body, _ := d.post(t, "/v1/peek", key); strings.Contains(body, `"source":"store"`) {
			return time.Since(began)
		}
	}
	t.Fatalf("the store is away %v after its server came back", longest)
	return 0
}

func TestServeTwoProcesses(t *testing.T) {
	bin := buildDaemon(t)
	eachTarget(t, func(t *testing.T, tgt *target) {
		const limit, workers, each = 100, 16, 20 // workers a process, demands a worker
		scheme := "redis://"
		if tgt.cluster {
			scheme = "redis+cluster://"
		}
		store, key := "--store="+scheme+tgt.addrs[0], fmt.Sprintf("two-processes:%d", time.Now().UnixNano())
		daemons := []*daemon{
			startDaemon(t, bin, store, "--on-failure=closed", fmt.Sprintf("--limit=%d/1h,day=%d/24h", limit, 2*limit), "--timeout=5s"),
			startDaemon(t, bin, store, "--on-failure=closed", fmt.Sprintf("--limit=%d/1h,day=%d/24h", limit, 2*limit), "--timeout=5s"),
		}
		var mu sync.Mutex
		statuses := make(map[int]int)
		var wg sync.WaitGroup
		for _, d := range daemons {
			for range workers {
				wg.Go(func() {
					for range each {
						status, _, _ := d.post(t, "/v1/take", key)
						mu.Lock()
						statuses[status]++
						mu.Unlock()
					}
				})
			}
		}
		wg.Wait()
		total := workers * each * len(daemons)
		if statuses[http.StatusOK] != limit || statuses[http.StatusTooManyRequests] != total-limit {
			t.Errorf("statuses %v of %d demands, want exactly %d admitted and the others refused", statuses, total, limit)
		}
		if status, body, _ := daemons[0].post(t, "/v1/reset", key); status != http.StatusNoContent {
			t.Errorf("reset: %d %s", status, body)
		}
		if status, body, _ := daemons[1].post(t, "/v1/take", key); status != http.StatusOK {
			t.Errorf("the other process after the reset: %d %s", status, body)
		}
		daemons[0].post(t, "/v1/reset", key)
	})
}

// A tally counts, by key, the units that daemons admitted and those that they may have.
type tally struct {
	mu      sync.Mutex
	keys    map[string]*units
	slowest time.Duration // of the answers
}

type units struct{ admitted, unknown int }

// take asks d for a unit, counts it, and returns the status. The answer must be a decision or that there is none, and come in time.
func (a *tally) take(t *testing.T, d *daemon, key string, longest time.Duration) int {
	t.Helper()
	status, body, took := d.post(t, "/v1/take", key)
	if took > longest {
		t.Errorf("answered with %d after %v, want %v at most", status, took, longest)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.slowest = max(a.slowest, took)
	if a.keys[key] == nil {
		a.keys[key] = new(units)
	}
	switch {
	case status == http.StatusOK:
		a.keys[key].admitted++
	case status == http.StatusServiceUnavailable && strings.Contains(body, "#ErrOutcomeUnknown"):
		a.keys[key].unknown++
	case status == http.StatusServiceUnavailable && strings.Contains(body, "#ErrUnavailable"):
	case status == http.StatusTooManyRequests:
	default:
		t.Errorf("take: %d %s", status, body)
	}
	return status
}

// TestServeWithoutServer freezes the server of a daemon, and stops it in the middle of a storm. All demands are answered in time, the
// limit holds over all faults for each of many keys, and the daemon goes on by itself.
func TestServeWithoutServer(t *testing.T) {
	const (
		limit   = 10
		workers = 8
		each    = limit + 2 // demands on a key, before the storm goes on to the next
		keys    = 500
		timeout = 100 * time.Millisecond
		longest = timeout + 250*time.Millisecond // the slack is for two processes on a busy machine
	)
	bin := buildDaemon(t)
	for _, image := range images {
		t.Run(strings.NewReplacer(":", "-", "/", "-").Replace(image), func(t *testing.T) {
			s := startServer(t, image)
			d := startDaemon(t, bin, "--store=redis://"+s.addr, "--on-failure=closed", fmt.Sprintf("--limit=%d/1h", limit), "--timeout="+timeout.String())
			count := tally{keys: make(map[string]*units)}
			undecided := func(fault string) {
				t.Helper()
				for range 5 {
					if status := count.take(t, d, "key:0", longest); status != http.StatusServiceUnavailable {
						t.Errorf("%s: %d, want 503", fault, status)
					}
				}
			}
			back := func(fault string) {
				t.Helper()
				took := d.awaitStore(t, "key:0")
				ran.measured("serve on %s: back %v after the server %s", image, took.Round(time.Millisecond), fault)
			}

			if status := count.take(t, d, "key:0", longest); status != http.StatusOK {
				t.Fatalf("before the faults: %d", status)
			}
			s.pause(t)
			undecided("frozen")
			s.unpause(t)
			back("was frozen")

			var (
				wg      sync.WaitGroup
				demands atomic.Int64
				ended   = make(chan struct{})
				blowing = make(chan struct{})
			)
			for range workers {
				wg.Go(func() {
					for {
						select {
						case <-ended:
							return
						default:
						}
						i := demands.Add(1)
						count.take(t, d, fmt.Sprintf("key:%d", i/each%keys), longest)
						if i == keys {
							close(blowing)
						}
					}
				})
			}
			<-blowing
			s.stop(t)
			undecided("stopped")
			close(ended)
			wg.Wait()
			s.start(t)
			back("was started again")

			unknown := 0
			for key, u := range count.keys {
				status := http.StatusOK
				for n := 0; status == http.StatusOK && n <= limit; n++ {
					status = count.take(t, d, key, longest)
				}
				if status != http.StatusTooManyRequests || u.admitted > limit || u.admitted+u.unknown < limit {
					t.Errorf("%s: %+v at a limit of %d, and then %d", key, *u, limit, status)
				}
				unknown += u.unknown
			}
			ran.measured("serve on %s: %d demands on %d keys while the server stopped, %d with an unknown outcome; slowest answer %v at a deadline of %v",
				image, demands.Load(), len(count.keys), unknown, count.slowest.Round(time.Millisecond), timeout)
		})
	}
}

func TestServeRefusesToStart(t *testing.T) {
	t.Parallel()
	bin := buildDaemon(t)
	s := startServer(t, images[0], "--requirepass", "right")
	for _, tt := range []struct{ name, url, want string }{
		{"wrong password", "redis://:wrong@" + s.addr, "user or password"},
		{"no password", "redis://" + s.addr, "user or password"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, err := exec.CommandContext(t.Context(), bin, "serve", "--addr=127.0.0.1:0", "--on-failure=closed", "--store="+tt.url).CombinedOutput()
			if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(string(out), tt.want) {
				t.Errorf("%v, %s; want exit code 1 and %q", err, out, tt.want)
			}
			if strings.Contains(string(out), "wrong@") {
				t.Errorf("the password is shown: %s", out)
			}
		})
	}
	d := startDaemon(t, bin, "--on-failure=closed", "--store=redis://:right@"+s.addr)
	if status, body, _ := d.post(t, "/v1/take", "k"); status != http.StatusOK {
		t.Errorf("with the password: %d %s", status, body)
	}
}
