package commands

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/integration/daemon"
	"github.com/truewindow/ratelimit/integration/servers"
)

// TestGateway runs the commands of docs/gateway.md: two gateways on one server admit together what
// the plan of a tenant says.
func TestGateway(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip(err)
	}
	page, err := os.ReadFile(filepath.Join(servers.Module, "docs/gateway.md"))
	if err != nil {
		t.Fatal(err)
	}
	loop := regexp.MustCompile("(?s)```sh\n(for port .*?)```").FindSubmatch(page)
	if loop == nil {
		t.Fatal("the page has no loop of requests")
	}
	bin := daemon.BuildOf(t, "integration/examples/gateway")
	servers.OneImage(t, "redis:8", func(t *testing.T, image string) {
		server := servers.Start(t, image)
		var ports []string // of the page, each before the one of the test
		for _, port := range []string{"8080", "8081"} {
			args := pageArgs(t, "docs/gateway.md",
				"go -C integration run ./examples/gateway -addr 127.0.0.1:"+port,
				"127.0.0.1:6379", server.Addr, "timeout=1s", "timeout=10s")
			free, err := servers.FreePort()
			if err != nil {
				t.Fatal(err)
			}
			ports = append(ports, port, fmt.Sprint(free))
			startGateway(t, bin, fmt.Sprint("127.0.0.1:", free), args...)
		}
		requests := strings.NewReplacer(ports...).Replace(string(loop[1]))
		out, err := exec.CommandContext(t.Context(), "sh", "-eu", "-c", requests).Output()
		if err != nil {
			t.Fatal(err)
		}
		want(t, "statuses", string(out), "200\n200\n200\n429\n")
	})
}

// startGateway starts a gateway and returns when it takes connections. It runs until the test ends.
func startGateway(t *testing.T, bin, addr string, args ...string) {
	t.Helper()
	var said bytes.Buffer
	cmd := exec.Command(bin, append(args, "-addr", addr)...)
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // fails if it has ended
		_ = cmd.Wait()         // it was killed
		if t.Failed() {
			t.Logf("%s said:\n%s", addr, said.String())
		}
	})
	servers.Within(t, func() bool {
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		return err == nil && conn.Close() == nil
	}, "a gateway listens on "+addr)
}
