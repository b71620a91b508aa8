// Package scripts tests the Lua scripts on real servers: each step against its Go twin, the stored
// states, and what a decision costs.
package scripts

import (
	"os"
	"testing"

	"github.com/truewindow/ratelimit/integration/servers"
)

func TestMain(m *testing.M) { os.Exit(servers.Run(m)) }
