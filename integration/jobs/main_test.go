package jobs

import (
	"os"
	"testing"

	"github.com/truewindow/ratelimit/integration/servers"
)

func TestMain(m *testing.M) {
	os.Exit(servers.Run(m, servers.Task{Env: workerVariable, Run: func(env string) int {
		return servers.RunTask(env, asynqWorker.run)
	}}))
}
