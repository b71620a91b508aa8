// Package access tests passwords, rights and TLS: what a store requires of a server, and what its
// errors must not reveal.
package access

import (
	"os"
	"testing"

	"github.com/truewindow/ratelimit/integration/servers"
)

func TestMain(m *testing.M) { os.Exit(servers.Run(m)) }
