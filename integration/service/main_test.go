// Package service tests how "ratelimit serve --config" behaves in operation: while its file
// changes, while it stops, after it was killed, and beside a service with another file.
package service

import (
	"os"
	"testing"

	"github.com/truewindow/ratelimit/integration/servers"
)

// TestMain has services collect garbage as often as they do in operation. "make" sets GOGC for the
// tests, and with it a collection is rare and comes in the middle of a load.
func TestMain(m *testing.M) {
	os.Unsetenv("GOGC")
	os.Exit(servers.Run(m))
}
