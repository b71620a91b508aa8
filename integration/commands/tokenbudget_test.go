package commands

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/integration/daemon"
	"github.com/truewindow/ratelimit/integration/servers"
)

// TestTokenBudget runs the example as docs/budgets.md does, but with a short window. The program
// fails if a window holds more than its budget and debt, if not exactly what was used is charged,
// or if what a killed process held is not free within a second after its time-out.
func TestTokenBudget(t *testing.T) {
	t.Parallel()
	bin := daemon.BuildOf(t, "integration/examples/tokenbudget")
	killed := regexp.MustCompile(`killed a process that holds [1-9]\d* tokens for [1-9]`)
	servers.OneImage(t, "redis:8", func(t *testing.T, image string) {
		server := servers.Start(t, image)
		args := pageArgs(t, "docs/budgets.md", "go -C integration run ./examples/tokenbudget",
			"127.0.0.1:6379", server.Addr, "timeout=1s", "timeout=10s")
		args = append(args, "-window=3s", "-cents=30000", "-call=200ms", "-timeout=2s", "-for=9s")
		out, err := exec.CommandContext(t.Context(), bin, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if !killed.Match(out) {
			t.Errorf("no process was killed in the middle of its calls:\n%s", out)
		}
		if !strings.Contains(string(out), "what it held is free\n") {
			t.Errorf("what the killed process held was not looked at:\n%s", out)
		}
	})
}
