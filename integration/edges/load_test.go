package edges

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend"
	_ "github.com/truewindow/ratelimit/backend/redis"
	"github.com/truewindow/ratelimit/httplimit"
	"github.com/truewindow/ratelimit/integration/servers"
)

const (
	loadLimit    = 100 // requests of a user in an hour
	loadRate     = 300 // requests of all users in a second
	loadDuration = 2 * time.Second
)

// TestLoad: a load generator sends the requests of two users to two processes in turn, which share
// the limits on one server. Each user is admitted exactly the limit.
func TestLoad(t *testing.T) {
	t.Parallel()
	generator := buildVegeta(t)
	servers.OneImage(t, "redis:8", func(t *testing.T, image string) {
		task := loadTask{"redis://" + servers.Start(t, image).Addr + "?timeout=10s"}
		processes := []*servers.Process{servers.StartProcess(t, loadEnv, task),
			servers.StartProcess(t, loadEnv, task)}
		users := []string{"ann", "bob"}
		var targets strings.Builder
		for _, p := range processes {
			var addr string
			if err := p.Answers.Decode(&addr); err != nil {
				t.Fatal(err)
			}
			for _, user := range users {
				fmt.Fprintf(&targets, "GET http://%s/\nX-User: %s\n\n", addr, user)
			}
		}

		statuses := attack(t, generator, targets.String())
		admitted, sent := len(users)*loadLimit, 0
		for _, n := range statuses {
			sent += n
		}
		if sent < 2*admitted { // a generator on a busy machine stays below its rate
			t.Fatalf("%d requests were sent, want at least %d", sent, 2*admitted)
		}
		if want := map[string]int{"200": admitted, "429": sent - admitted}; !maps.Equal(
			statuses, want) {
			t.Errorf("got answers by status %v, want %v", statuses, want)
		}

		var handled int64
		for _, p := range processes {
			p.Stdin.Close()
			var n int64
			if err := errors.Join(p.Answers.Decode(&n), p.Cmd.Wait()); err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				t.Error("one of the processes admitted nothing, want some from each")
			}
			handled += n
		}
		if handled != int64(admitted) {
			t.Errorf("the handlers ran %d times, want %d", handled, admitted)
		}
	})
}

// buildVegeta builds the load generator, a tool of the examples module, and returns its path. It is
// not a dependency of this module.
func buildVegeta(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "vegeta")
	build := exec.CommandContext(t.Context(), "go", "-C", filepath.Join(servers.Module, "examples"),
		"build", "-o", bin, "github.com/tsenart/vegeta/v12")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building vegeta: %v\n%s", err, out)
	}
	return bin
}

// attack sends requests to the targets in turn and returns the number of answers by status.
func attack(t *testing.T, bin, targets string) map[string]int {
	t.Helper()
	run := func(stdin io.Reader, args ...string) *bytes.Buffer {
		cmd := exec.CommandContext(t.Context(), bin, args...)
		var out bytes.Buffer
		cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, os.Stderr
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		return &out
	}
	results := run(strings.NewReader(targets), "attack", "-timeout=30s",
		fmt.Sprintf("-rate=%d/1s", loadRate), "-duration="+loadDuration.String())
	var report struct {
		StatusCodes map[string]int `json:"status_codes"`
	}
	if err := json.Unmarshal(run(results, "report", "-type=json").Bytes(), &report); err != nil {
		t.Fatal(err)
	}
	return report.StatusCodes
}

// loadEnv makes the test binary a process of TestLoad: it holds a loadTask.
const loadEnv = "RATELIMIT_TEST_LOAD"

type loadTask struct{ Store string }

// serveLoad serves the limits of TestLoad until its input ends. It first answers with its address,
// and at the end with the number of requests that its handler served.
func serveLoad(env string) int { return servers.RunTask(env, loadTask.serve) }

func (task loadTask) serve() error {
	ctx := context.Background()
	store, err := backend.Open(ctx, task.Store)
	if err != nil {
		return err
	}
	defer store.Close()
	limiter, err := ratelimit.New(store, algorithm.SlidingLog(ratelimit.PerHour("hour", loadLimit)))
	if err != nil {
		return err
	}
	var handled atomic.Int64
	ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { handled.Add(1) })
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: httplimit.Handler(limiter, httplimit.Header("X-User"), ok)}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	answers := json.NewEncoder(os.Stdout)
	if err := answers.Encode(true); err != nil {
		return err
	}
	if err := answers.Encode(listener.Addr().String()); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	if err := server.Shutdown(ctx); err != nil {
		return err
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return answers.Encode(handled.Load())
}
