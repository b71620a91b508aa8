// Package clocks tests stores whose server's clock steps, and stores in processes that are stopped.
package clocks

import (
	"os"
	"testing"

	"github.com/truewindow/ratelimit/integration/servers"
)

func TestMain(m *testing.M) {
	os.Exit(servers.Run(m, servers.Task{Env: stoppedEnv, Run: stoppedProcessMain}))
}
