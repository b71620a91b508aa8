package shipping

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/integration/daemon"
	"github.com/truewindow/ratelimit/integration/servers"
)

// TestSystemd: systemd accepts the unit, and finds little that the service could do to the machine.
// The service sees how many connections may wait.
func TestSystemd(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip(err)
	}
	unit, err := os.ReadFile(filepath.Join(servers.Module, "deploy/systemd/ratelimit.service"))
	if err != nil {
		t.Fatal(err)
	}
	const installed = "/usr/local/bin/ratelimit"
	if !strings.Contains(string(unit), "ExecStart="+installed+" serve\n") {
		t.Fatalf("the unit does not start %s", installed)
	}
	if strings.Contains(string(unit), "\nProcSubset=pid\n") {
		t.Error("the unit hides /proc/sys/net/core/somaxconn, without which Go takes 128")
	}
	path := filepath.Join(t.TempDir(), "ratelimit.service")
	text := strings.ReplaceAll(string(unit), installed, daemon.Build(t))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	const mostExposure = "15" // of 100
	for _, args := range [][]string{
		{"verify", "--man=no"},
		{"security", "--offline=true", "--threshold=" + mostExposure},
	} {
		out, err := exec.Command("systemd-analyze", append(args, path)...).CombinedOutput()
		// For a directive that it does not know, verify prints a warning and succeeds.
		if err != nil || args[0] == "verify" && len(out) > 0 {
			t.Errorf("systemd-analyze %s: %v\n%s", args[0], err, out)
		}
	}
}
