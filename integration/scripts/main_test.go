// Package scripts tests the Lua scripts on real servers: each step against its Go implementation,
// the stored states, and the cost of a decision.
package scripts

import (
	"os"
	"testing"

	"github.com/truewindow/ratelimit/integration/servers"
)

func TestMain(m *testing.M) { os.Exit(servers.Run(m)) }
