// Package service tests how "ratelimit serve --config" behaves in operation: while its file
// changes, while it stops, after it was killed, and beside a service with another file.
package service

import (
	"os"
	"testing"

	"github.com/truewindow/ratelimit/integration/servers"
)

func TestMain(m *testing.M) { os.Exit(servers.Run(m)) }
