// Package edges tests HTTP servers with third-party programs: limits by client address behind
// nginx, Caddy and HAProxy, with curl as the client, and limits that two processes share, under a
// load generator.
package edges

import (
	"os"
	"testing"

	"github.com/truewindow/ratelimit/integration/servers"
)

func TestMain(m *testing.M) { os.Exit(servers.Run(m, servers.Task{Env: loadEnv, Run: serveLoad})) }
