package envoy

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/truewindow/ratelimit/integration/daemon"
	"github.com/truewindow/ratelimit/integration/servers"
)

// TestRefusedSettings: a setting of their files that is not kept is an error with its position, and
// what the error says to write instead answers as theirs does.
func TestRefusedSettings(t *testing.T) {
	const descriptor = `domain: api
descriptors:
  - {key: few, value: "a*", rate_limit: {unit: day, requests_per_unit: 1}, `
	requests := []*rls.RateLimitRequest{
		call("api", of("few", "a1")), call("api", of("few", "a1")), call("api", of("few", "a2"))}
	for _, tt := range []struct{ setting, problem, instead, answers string }{
		{"share_threshold: true", ":3:93: share_threshold is not kept",
			`limits: [{name: few, when: {few: "a*"}, max: 1/1d}]`, "1 2 2"},
		{"quota_mode: true", ":3:88: quota_mode is not kept",
			descriptor + "shadow_mode: true}", "1 1 1"},
	} {
		file := descriptor + tt.setting + "}"
		addr := servers.Start(t, servers.Newest()).Addr
		setEnvironment(t, addr, map[string]string{"api.yaml": file})
		if got := startTheirs(t).codes(t, requests); got != tt.answers {
			t.Errorf("%s: theirs answers %s, want %s", tt.setting, got, tt.answers)
		}
		path := filepath.Join(t.TempDir(), "limits.yaml")
		if err := os.WriteFile(path, []byte(file), 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(daemon.Build(t), "validate", path).CombinedOutput()
		advises := strings.Contains(string(out), ": write ") ||
			strings.Contains(string(out), ", write ")
		if err == nil || !strings.HasPrefix(string(out), path+tt.problem) || !advises {
			t.Errorf("%s: %v, %s", tt.setting, err, out)
		}
		if err := os.WriteFile(path, []byte(tt.instead), 0o644); err != nil {
			t.Fatal(err)
		}
		t.Setenv("RUNTIME_ROOT", "")
		port, err := servers.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		at := fmt.Sprintf("127.0.0.1:%d", port)
		d := daemon.Start(t, daemon.Build(t), "--config="+path, "--grpc-addr="+at)
		if got := dial(t, at, d.PID()).codes(t, requests); got != tt.answers {
			t.Errorf("%s: ours answers %s instead, want %s", tt.setting, got, tt.answers)
		}
	}
}
