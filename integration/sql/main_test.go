// Package sql tests the store in a database on PostgreSQL, MariaDB, MySQL and SQLite.
package sql

import (
	"io"
	"log"
	"os"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/truewindow/ratelimit/integration/servers"
)

func TestMain(m *testing.M) {
	// Connections that break are part of the tests.
	if err := mysql.SetLogger(log.New(io.Discard, "", 0)); err != nil {
		panic(err)
	}
	os.Exit(servers.Run(m, servers.Task{Env: fileVariable, Run: takeUntilKilled},
		servers.Task{Env: callerVariable, Run: func(env string) int {
			return servers.RunTask(env, caller.run)
		}}))
}
