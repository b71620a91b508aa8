package commands

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/truewindow/ratelimit/integration/daemon"
	"github.com/truewindow/ratelimit/integration/servers"
)

// TestReadme runs the commands of the README, with the daemon on a free port.
func TestReadme(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(servers.Module, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	commands := regexp.MustCompile(`(?s)\ngo run \./cmd/ratelimit serve ([^\n]*)\n.*` +
		`\ncurl -i -d '(\{[^\n]*\})' http://127\.0\.0\.1:8080(/v1/decide)\n`).FindSubmatch(page)
	if commands == nil {
		t.Fatal("the README does not have the two commands")
	}
	d := daemon.Start(t, daemon.Build(t), strings.Fields(string(commands[1]))...)
	for i := range 12 {
		want := http.StatusOK
		if i >= 10 {
			want = http.StatusTooManyRequests
		}
		status, body, _ := d.PostJSON(t, string(commands[3]), string(commands[2]))
		if status != want {
			t.Errorf("request %d: %d %s, want %d", i+1, status, body, want)
		}
	}
}
