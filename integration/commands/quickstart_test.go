package commands

import (
	"fmt"
	"net"
	"net/http"
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
// timeout for busy machines, and with the module of this tree instead of a released one. The page
// begins with the program of the README.
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
		program := q.write("main.go")
		if !strings.Contains(q.read("README.md"), "```go\n"+program+"```") {
			t.Error("the first program is not that of README.md")
		}
		q.shell("go mod edit")
		want(t, "output", q.shell("exec "), "true 59 0s <nil>\n")

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
		stop = q.start(q.addrs[0])
		stopSecond := q.start(q.addrs[1])
		want(t, "statuses", q.shell("for port"), "200\n200\n200\n200\n200\n429\n")
		q.shell("docker stop")
		q.refused(q.addrs[0], http.StatusServiceUnavailable)
		stop()
		stopSecond()

		q.write("metrics.go")
		q.insert("main.go")
		q.shell("go mod tidy")
		q.start(q.addrs[0])
		counted := q.shell("/metrics")
		for outcome, n := range map[string]string{"admitted": "5", "refused": "1"} {
			line := regexp.MustCompile(`(?m)^ratelimit_decisions_total\{.*ratelimit_outcome="` +
				outcome + `".*\} ` + n + `$`)
			if !line.MatchString(counted) {
				t.Errorf("not %s decisions are counted as %s:\n%s", n, outcome, counted)
			}
		}
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
	root   string // of the repository
	page   string
	dir    string
	name   string   // of the container
	addrs  []string // of the program, of a second one, and of the server
	blocks []string // that are left
}

func newQuickstart(t *testing.T) *quickstart {
	q := &quickstart{t: t, dir: t.TempDir(), name: fmt.Sprintf("shop-redis-%d", os.Getpid())}
	var err error
	if q.root, err = filepath.Abs(servers.Module); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		port, err := servers.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		q.addrs = append(q.addrs, fmt.Sprintf("127.0.0.1:%d", port))
	}
	port := func(i int) string { return strings.TrimPrefix(q.addrs[i], "127.0.0.1:") }
	const module = "github.com/truewindow/ratelimit"
	q.page = strings.NewReplacer(
		"6379:6379", port(2)+":6379",
		"redis://127.0.0.1:6379", "redis://"+q.addrs[2]+"?timeout=5s",
		"8080", port(0), "8081", port(1), "shop-redis", q.name,
		"go get "+module, "go mod edit -require="+module+"@v0.0.0 -replace="+module+"="+q.root+
			" -replace="+module+"/otellimit="+q.root+"/otellimit",
		"\ngo run .\n", "\ngo build -o shop .\n```\n```sh\nexec ./shop\n",
		"STORE=", "exec env STORE=", " go run .", " ./shop",
	).Replace(q.read("docs/quickstart.md"))
	for _, b := range regexp.MustCompile("(?s)```(?:sh|go)\n(.*?)```").
		FindAllStringSubmatch(q.page, -1) {
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

// read returns a file of the repository.
func (q *quickstart) read(name string) string {
	q.t.Helper()
	text, err := os.ReadFile(filepath.Join(q.root, name))
	if err != nil {
		q.t.Fatal(err)
	}
	return string(text)
}

// write writes the next block to a file, and returns it.
func (q *quickstart) write(name string) string {
	q.t.Helper()
	block := q.next("package main")
	if err := os.WriteFile(filepath.Join(q.dir, name), []byte(block), 0o600); err != nil {
		q.t.Fatal(err)
	}
	return block
}

// insert adds the statement to a file that the page says, before the one that it says.
func (q *quickstart) insert(name string) {
	q.t.Helper()
	said := regexp.MustCompile("and `([^`]+)` before `([^`]+)`\\sin `" + name + "`").
		FindStringSubmatch(q.page)
	if said == nil {
		q.t.Fatalf("the page does not say what to insert into %s", name)
	}
	file := filepath.Join(q.dir, name)
	code, err := os.ReadFile(file)
	if err != nil {
		q.t.Fatal(err)
	}
	text := strings.Replace(string(code), "\t"+said[2], "\t"+said[1]+"\n\t"+said[2], 1)
	if text == string(code) {
		q.t.Fatalf("%s has no %q", name, said[2])
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		q.t.Fatal(err)
	}
}

// refused sends a request, whose answer has to have a status.
func (q *quickstart) refused(addr string, status int) {
	q.t.Helper()
	resp, err := http.Get("http://" + addr + "/")
	if err != nil {
		q.t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != status {
		q.t.Errorf("the answer is %s, want %d", resp.Status, status)
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
