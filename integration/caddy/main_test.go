// Package caddy tests the directive limits in a Caddy that xcaddy has built.
package caddy

import (
	"os"
	"testing"

	"github.com/truewindow/ratelimit/integration/servers"
)

func TestMain(m *testing.M) { os.Exit(servers.Run(m)) }
