package envoy

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/integration/servers"
)

// referenceVersion is the version of envoyproxy/ratelimit, which has no tags for Go.
const referenceVersion = "v1.4.1-0.20260122083618-3fb702589d36"

// buildReference installs the service and the client of envoyproxy/ratelimit into a directory, once
// for all tests.
var buildReference = sync.OnceValues(func() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "ratelimit-reference-"); err != nil {
		return "", err
	}
	servers.AtEnd(func() error { return os.RemoveAll(dir) })
	const module = "github.com/envoyproxy/ratelimit/src/"
	began := time.Now()
	install := exec.Command("go", "install", module+"service_cmd@"+referenceVersion,
		module+"client_cmd@"+referenceVersion)
	install.Env = append(os.Environ(), "GOWORK=off", "GOBIN="+dir)
	if out, err := install.CombinedOutput(); err != nil {
		return "", fmt.Errorf("envoyproxy/ratelimit is not installed: %w: %s", err,
			bytes.TrimSpace(out))
	}
	servers.Measured("envoyproxy/ratelimit was built in %v",
		time.Since(began).Round(time.Second/10))
	return dir, nil
})

// reference returns the path of a program of envoyproxy/ratelimit. A test that cannot have it is
// skipped.
func reference(t testing.TB, program string) string {
	t.Helper()
	dir, err := buildReference()
	if err != nil {
		servers.Skip(t, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return filepath.Join(dir, program)
}

// startReference starts the service with the environment of the test until its end, and returns the
// id of its process.
func startReference(t testing.TB) (pid int) {
	t.Helper()
	cmd := exec.Command(reference(t, "service_cmd"))
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		if t.Failed() {
			t.Logf("envoyproxy/ratelimit logged:\n%s", log.Bytes())
		}
	})
	return cmd.Process.Pid
}
