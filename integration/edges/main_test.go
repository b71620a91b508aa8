// Package edges tests limits by client address behind proxies that others wrote, nginx and Caddy,
// with curl as the client.
package edges

import (
	"os"
	"testing"

	"github.com/truewindow/ratelimit/integration/servers"
)

func TestMain(m *testing.M) { os.Exit(servers.Run(m)) }
