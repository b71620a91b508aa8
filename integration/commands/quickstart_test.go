package commands

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/integration/servers"
)

// TestQuickstart runs all commands of docs/quickstart.md in their order, but on free ports, with a
// timeout for busy machines, and with the module of this tree instead of a released one.
func TestQuickstart(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"curl", "docker"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	servers.OneImage(t, "redis:8", func(t *testing.T, image string) {
		if image != "redis:8" {
			t.Skip("the page starts redis:8")
		}
		q := newQuickstart(t)
		t.Cleanup(func() { _ = exec.Command("docker", "rm", "-f", q.name).Run() })

		q.shell("mkdir")
		q.dir = filepath.Join(q.dir, "shop")
		q.write("main.go")
		q.shell("go mod tidy")
		stop := q.start(q.addrs[0])
		want(t, "statuses", q.shell("for i"), "200\n200\n200\n200\n200\n429\n")
		answer := q.shell("curl -i")
		for _, line := range []string{"HTTP/1.1 429 ", "Retry-After: ",
			`Ratelimit: "page";r=0;t=`} {
			if !strings.Contains(answer, line) {
				t.Errorf("the answer has no %q:\n%s", line, answer)
			}
		}
		stop()

		q.shell("docker run")
		server := servers.Connect(t, q.addrs[2]) // Docker takes connections before the server does
		servers.Within(t, func() bool { return server.Ping(t.Context()).Err() == nil },
			"the server does not answer")
		q.start(q.addrs[0])
		q.start(q.addrs[1])
		want(t, "statuses", q.shell("for port"), "200\n200\n200\n200\n200\n429\n")
		counted := q.shell("curl -s")
		if n := strings.Count(counted, "\nratelimit_decisions_total{"); n != 1 ||
			!regexp.MustCompile(`ratelimit_outcome="admitted".*} 3\n`).MatchString(counted) {
			t.Errorf("not only three admitted requests are counted:\n%s", counted)
		}
		q.shell("docker stop")
		if len(q.blocks) > 0 {
			t.Errorf("%d blocks are not tested, the first is\n%s", len(q.blocks), q.blocks[0])
		}
	})
}

func want(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got\n%swant\n%s", what, got, want)
	}
}

// A quickstart follows the page.
type quickstart struct {
	t      *testing.T
	dir    string
	name   string   // of the container
	addrs  []string // of the program, of a second one, and of the server
	blocks []string // that are left
}

func newQuickstart(t *testing.T) *quickstart {
	q := &quickstart{t: t, dir: t.TempDir(), name: fmt.Sprintf("shop-redis-%d", os.Getpid())}
	for range 3 {
		port, err := servers.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		q.addrs = append(q.addrs, fmt.Sprintf("127.0.0.1:%d", port))
	}
	port := func(i int) string { return strings.TrimPrefix(q.addrs[i], "127.0.0.1:") }
	const module = "github.com/truewindow/ratelimit"
	root, err := filepath.Abs(servers.Module)
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs/quickstart.md"))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer(
		"6379:6379", port(2)+":6379",
		"redis://127.0.0.1:6379", "redis://"+q.addrs[2]+"?timeout=5s",
		"8080", port(0), "8081", port(1), "shop-redis", q.name,
		"go get "+module, "go mod edit -require="+module+"@v0.0.0 -replace="+module+"="+root+
			" -replace="+module+"/otellimit="+root+"/otellimit",
		"\ngo run .\n", "\ngo build -o shop .\n```\n```sh\nexec ./shop\n",
		"STORE=", "exec env STORE=", " go run .", " ./shop",
	).Replace(string(page))
	for _, b := range regexp.MustCompile("(?s)```(?:sh|go)\n(.*?)```").
		FindAllStringSubmatch(text, -1) {
		q.blocks = append(q.blocks, b[1])
	}
	return q
}

// next takes the next block, which has to contain some text.
func (q *quickstart) next(text string) string {
	q.t.Helper()
	if len(q.blocks) == 0 || !strings.Contains(q.blocks[0], text) {
		q.t.Fatalf("the next block does not have %q: %q", text, q.blocks)
	}
	block := q.blocks[0]
	q.blocks = q.blocks[1:]
	return block
}

// shell runs the next block and returns what it prints.
func (q *quickstart) shell(text string) string {
	q.t.Helper()
	cmd := exec.CommandContext(q.t.Context(), "sh", "-eu", "-c", q.next(text))
	cmd.Dir = q.dir
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		q.t.Fatalf("%s: %v\n%s%s", text, err, out, stderr.String())
	}
	return string(out)
}

// write writes the next block to a file.
func (q *quickstart) write(name string) {
	q.t.Helper()
	file := filepath.Join(q.dir, name)
	if err := os.WriteFile(file, []byte(q.next("package main")), 0o600); err != nil {
		q.t.Fatal(err)
	}
}

// start runs the next block, which becomes a program that listens on addr, until the test ends or
// stop is called.
func (q *quickstart) start(addr string) (stop func()) {
	q.t.Helper()
	cmd := exec.Command("sh", "-eu", "-c", q.next("exec "))
	cmd.Dir = q.dir
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		q.t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		if err := cmd.Process.Kill(); err != nil {
			q.t.Errorf("%v\n%s", err, said.String())
		}
		_ = cmd.Wait() // it was killed
	})
	q.t.Cleanup(stop)
	q.await(addr)
	return stop
}

// await returns when an address takes connections.
func (q *quickstart) await(addr string) {
	q.t.Helper()
	servers.Within(q.t, func() bool {
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if err != nil {
			return false
		}
		return conn.Close() == nil
	}, "a program listens on "+addr)
}
