// Package commands tests the commands of cmd as processes.
package commands

import (
	"os"
	"testing"

	"github.com/truewindow/ratelimit/integration/servers"
)

func TestMain(m *testing.M) { os.Exit(servers.Run(m)) }
