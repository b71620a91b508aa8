// Package soak makes random demands under random faults and checks the history of every key.
package soak

import (
	"os"
	"testing"

	"github.com/truewindow/ratelimit/integration/servers"
)

func TestMain(m *testing.M) {
	os.Exit(servers.Run(m, servers.Task{Env: soakEnv, Run: runSoakProcess}))
}
