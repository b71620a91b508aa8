// Command ratelimit serves rate-limit decisions over HTTP and gRPC.
// Package command documents it, and package serverstore the URLs of its stores.
package main

import (
	"github.com/redis/go-redis/v9/logging"

	"github.com/truewindow/ratelimit/cmd/ratelimit/command"

	_ "github.com/truewindow/ratelimit/backend/memory"
	_ "github.com/truewindow/ratelimit/backend/mysql"
	_ "github.com/truewindow/ratelimit/backend/postgres"
	_ "github.com/truewindow/ratelimit/backend/redis"
	_ "github.com/truewindow/ratelimit/backend/rueidis"
	_ "github.com/truewindow/ratelimit/backend/sqlite"
	_ "github.com/truewindow/ratelimit/backend/valkey"
)

func main() {
	logging.Disable() // go-redis's log is not structured, and the store returns its errors
	command.Main()
}
