// Package leases tests that processes with leases of the same keys keep their limits, on servers.
package leases

import (
	"os"
	"testing"

	"github.com/truewindow/ratelimit/integration/servers"
)

func TestMain(m *testing.M) {
	os.Exit(servers.Run(m, servers.Task{Env: memberEnv,
		Run: func(env string) int { return servers.RunTask(env, memberTask.run) }}))
}
