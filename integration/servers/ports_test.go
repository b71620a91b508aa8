package servers

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

const portEnv = "RATELIMIT_TEST_PORT"

// TestPortsAreReserved: no other process gets a port of this one, and this one gets none twice.
func TestPortsAreReserved(t *testing.T) {
	if text := os.Getenv(portEnv); text != "" {
		port, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("reserved %t", reserve(port))
		return
	}
	port, err := FreePort()
	if err != nil {
		t.Fatal(err)
	}
	if reserve(port) {
		t.Error("this process gets a port twice")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.v",
		"-test.run=^TestPortsAreReserved$")
	cmd.Env = append(os.Environ(), portEnv+"="+strconv.Itoa(port))
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "reserved false") {
		t.Errorf("%v, another process: %s", err, out)
	}
}
