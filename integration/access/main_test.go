// Package access tests passwords, rights and TLS: what a store needs of a server, and what its
// errors must not show.
package access

import (
	"os"
	"testing"

	"github.com/truewindow/ratelimit/integration/servers"
)

func TestMain(m *testing.M) { os.Exit(servers.Run(m)) }
