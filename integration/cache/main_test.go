// Package cache tests the cache of refusals on servers that push invalidations.
package cache

import (
	"os"
	"testing"

	"github.com/truewindow/ratelimit/integration/servers"
)

func TestMain(m *testing.M) { os.Exit(servers.Run(m)) }
