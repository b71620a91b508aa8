// Command teamdaemon is the daemon of a team that has a store of its own.
package main

import (
	"github.com/truewindow/ratelimit/daemon"

	_ "github.com/truewindow/ratelimit/backend/redis" // what else it is to offer
	_ "github.com/truewindow/ratelimit/integration/examples/teamstore"
)

func main() { daemon.Main() }
