// Package envoy compares the service with envoyproxy/ratelimit: both get the same environment, the
// same files and the same requests, on one server.
package envoy

import (
	"os"
	"testing"

	"github.com/truewindow/ratelimit/integration/servers"
)

func TestMain(m *testing.M) { os.Exit(servers.Run(m)) }
