package commands

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/integration/daemon"
)

// TestServeTeamStore builds the daemon with a store that is not of this module, and serves it. The
// store keeps what was admitted in a file while the daemon is down.
func TestServeTeamStore(t *testing.T) {
	t.Parallel()
	bin := daemon.BuildOf(t, "integration/examples/teamdaemon")
	file := filepath.Join(t.TempDir(), "limits.json")
	args := pageArgs(t, "docs/writing-a-store.md", "teamdaemon serve",
		"/var/lib/limits.json", file, "10/1m", "3/1h")
	for _, run := range []struct {
		name     string
		statuses []int
	}{
		{"started", []int{http.StatusOK, http.StatusOK}},
		{"started again", []int{http.StatusOK, http.StatusTooManyRequests}},
	} {
		t.Run(run.name, func(t *testing.T) {
			d := daemon.Start(t, bin, args...)
			for i, status := range run.statuses {
				if got, body, _ := d.Post(t, "/v1/decide", "key"); got != status {
					t.Errorf("take %d: %d %s, want %d", i, got, body, status)
				}
			}
			if !strings.Contains(d.Logged(), "file:"+file) {
				t.Errorf("the log does not name the store: %s", d.Logged())
			}
		})
	}
	out := daemon.RunRefused(t, bin, "--store=file:"+file+"?colour=red")
	if !strings.Contains(out, `"colour" is unknown`) {
		t.Error(out)
	}
	out = daemon.RunRefused(t, bin, "--store=valkey://user:marked@localhost")
	if !strings.Contains(out, "ratelimit/backend/valkey") || strings.Contains(out, "marked") {
		t.Error(out)
	}
}
