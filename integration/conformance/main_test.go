// Package conformance runs the conformance suite and measures exactness on every server with every
// client library.
package conformance

import (
	"os"
	"testing"

	"github.com/truewindow/ratelimit/integration/servers"
)

func TestMain(m *testing.M) {
	os.Exit(servers.Run(m, servers.Task{Env: stormEnv, Run: stormProcess}))
}
