// Package servers starts the Redis and Valkey servers, clusters and Sentinels that tests run on,
// injects faults into them, and reports which tests ran on which servers.
package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit/internal/testkit/leak"
)

// A Task is what a process runs instead of tests when the environment variable Env is set. Run gets
// the variable's value and returns the exit code.
type Task struct {
	Env string
	Run func(value string) int
}

// Run is TestMain of every folder: it runs the tests, or the task that the environment names,
// reports which tests ran on which servers, closes shared resources, and returns the exit code.
func Run(m *testing.M, tasks ...Task) int {
	redis.SetLogger(silent{})
	for _, task := range tasks {
		if value := os.Getenv(task.Env); value != "" {
			return task.Run(value)
		}
	}
	stop := ran.progress()
	code := m.Run()
	stop()
	if err := closeShared(); err != nil {
		fmt.Println("closing the shared servers and clients:", err)
		code = 1
	}
	code = leak.Check(code)
	if skipped := ran.finish(); skipped > 0 && required {
		fmt.Println("tests were skipped, but RATELIMIT_REQUIRE_SERVERS requires servers")
		code = max(code, 1)
	}
	return code
}

// silent drops go-redis' log lines about the faults that tests inject.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// required is whether a missing server fails a test instead of skipping it.
var required = os.Getenv("RATELIMIT_REQUIRE_SERVERS") == "1"

// Skip skips a test for lack of a server, or fails it if servers are required.
func Skip(t testing.TB, reason string) {
	t.Helper()
	if required {
		t.Fatalf("RATELIMIT_REQUIRE_SERVERS is set, but the test would be skipped: %s", reason)
	}
	ran.skip(reason)
	t.Skip(reason)
}

// shared holds what the tests of a process share until the end of the run.
var shared struct {
	mu      sync.Mutex
	closers []func() error
}

// AtEnd calls f when all tests of the process have ended.
func AtEnd(f func() error) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	shared.closers = append(shared.closers, f)
}

func closeShared() error {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	var errs []error
	for _, f := range shared.closers {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}
