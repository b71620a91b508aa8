// Package stores tests stores on servers: batches, connections, errors, deadlines, observations,
// probes, URLs and waiting.
package stores

import (
	"os"
	"testing"

	"github.com/truewindow/ratelimit/integration/servers"
)

func TestMain(m *testing.M) {
	os.Exit(servers.Run(m, servers.Task{Env: waitEnv, Run: waitProcess},
		servers.Task{Env: holderEnv, Run: holder}))
}
