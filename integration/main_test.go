package integration

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/testcontainers/testcontainers-go"
	tclog "github.com/testcontainers/testcontainers-go/log"

	"github.com/truewindow/ratelimit/internal/leak"
)

func TestMain(m *testing.M) {
	if task := os.Getenv(stormEnv); task != "" {
		os.Exit(stormProcess(task))
	}
	if task := os.Getenv(stoppedEnv); task != "" {
		os.Exit(stoppedProcessMain(task))
	}
	if task := os.Getenv(soakEnv); task != "" {
		os.Exit(runSoakProcess(task))
	}
	redis.SetLogger(quiet{})
	prepareDocker()
	if noServers != "" {
		if requireServers() {
			fmt.Println("integration: failed:", noServers)
			os.Exit(1)
		}
		fmt.Println("integration: skipped:", noServers)
	}
	code := m.Run()
	if err := closeShared(); err != nil {
		fmt.Println("integration:", err)
		code = 1
	}
	if code = leak.Check(code); code == 0 {
		if err := writeFaults(); err != nil {
			fmt.Println("integration:", err)
			code = 1
		}
	}
	fmt.Print(ran.summary())
	os.Exit(code)
}

// quiet drops what go-redis would log of the faults that tests inject.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// full is whether to try all combinations, and tests in their long form.
var full = os.Getenv("RATELIMIT_FULL") != ""

// noServers tells why no server can be had, noDocker why no container can.
var noServers, noDocker string

func requireServers() bool { return os.Getenv("RATELIMIT_REQUIRE_SERVERS") == "1" }

// prepareDocker finds out whether an engine answers, sets what testcontainers reads from the environment, and
// removes what killed runs left behind.
func prepareDocker() {
	tclog.SetDefault(tclog.NewNoopLogger())
	setDefaultEnv("TESTCONTAINERS_RYUK_DISABLED", "true")
	// Where /.dockerenv exists testcontainers looks for published ports on the default gateway. The bridge of an engine on this very
	// machine shows that they are here.
	if _, err := net.InterfaceByName("docker0"); err == nil {
		setDefaultEnv("TESTCONTAINERS_HOST_OVERRIDE", "localhost")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := dockerAnswers(ctx); err != nil {
		cause, _, _ := strings.Cut(err.Error(), "\n")
		noDocker = fmt.Sprintf("no Docker engine answers (%s)", cause)
		if len(givenAddresses()) == 0 {
			noServers = noDocker + ", and neither RATELIMIT_REDIS_ADDR nor RATELIMIT_VALKEY_ADDR is set"
		}
		return
	}
	if err := sweep(ctx); err != nil {
		fmt.Println("integration: containers of earlier runs:", err)
	}
}

func setDefaultEnv(name, value string) {
	if _, ok := os.LookupEnv(name); !ok {
		os.Setenv(name, value)
	}
}

// dockerAnswers asks the engine for a sign of life. Testcontainers panics where it finds no socket.
func dockerAnswers(ctx context.Context) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	provider, err := testcontainers.NewDockerProvider()
	if err != nil {
		return err
	}
	defer provider.Close()
	return provider.Health(ctx)
}

// skip skips a test that lacks a server, or fails it where servers are required.
func skip(t testing.TB, reason string) {
	t.Helper()
	if requireServers() {
		t.Fatalf("a server is required: %s", reason)
	}
	ran.skip()
	t.Skip(reason)
}

// ran counts what ran on servers.
var ran report

type report struct {
	mu      sync.Mutex
	tests   int
	skipped int
	servers []string // where tests ran, each once
	lines   []string // what tests measured
}

func (r *report) add(server string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tests++
	if !slices.Contains(r.servers, server) {
		r.servers = append(r.servers, server)
	}
}

func (r *report) skip() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.skipped++
}

// measured keeps a line for the end of the run, where it is seen without -v.
func (r *report) measured(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

func (r *report) summary() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.Sort(r.lines)
	slices.Sort(r.servers)
	var b strings.Builder
	for _, line := range r.lines {
		fmt.Fprintln(&b, line)
	}
	on := ""
	if len(r.servers) > 0 {
		on = " on " + strings.Join(r.servers, ", ")
	}
	fmt.Fprintf(&b, "integration: %d tests on servers ran%s; %d skipped\n", r.tests, on, r.skipped)
	return b.String()
}
