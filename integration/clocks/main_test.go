// Package clocks tests stores on servers, and in processes, whose clocks step or stand still.
package clocks

import (
	"os"
	"testing"

	"github.com/truewindow/ratelimit/integration/servers"
)

func TestMain(m *testing.M) {
	os.Exit(servers.Run(m, servers.Task{Env: stoppedEnv, Run: stoppedProcessMain}))
}
