// Command teamdaemon is the daemon with a team's own store.
package main

import (
	"github.com/truewindow/ratelimit/cmd/ratelimit/command"

	_ "github.com/truewindow/ratelimit/backend/redis" // what else it is to offer
	_ "github.com/truewindow/ratelimit/integration/examples/teamstore"
)

func main() { command.Main() }
