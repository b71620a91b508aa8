// Package stores tests what a store on a server does for its callers: batches, connections,
// errors, deadlines, observations, probes, URLs, and what waiting costs.
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
