package sql

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	sqlstore "github.com/truewindow/ratelimit/backend/sql"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/servers"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
)

// fileVariable names, in the environment of a process, the file that it takes from until it is
// killed.
const fileVariable = "RATELIMIT_SQL_FILE"

const takers = 16

// yearly counts without a record for each unit.
var yearly = algorithm.FixedWindow(driver.Limit{Name: "calls", Max: 1_000_000,
	Window: driver.MaxWindow})

// takeUntilKilled prints a line for each take that was admitted.
func takeUntilKilled(file string) int {
	s, err := sqliteKind().storeAt(file, nil)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	var wg sync.WaitGroup
	for range takers {
		wg.Go(func() {
			for {
				d := driver.Demand{Key: "k", N: 1, Algorithm: yearly}
				if _, err := s.Take(context.Background(), d); err == nil {
					os.Stdout.WriteString("taken\n")
				}
			}
		})
	}
	wg.Wait()
	return 0
}

// TestKilledProcess: what was acknowledged to a process is in the file when the process is killed,
// and of the rest no more than it had asked for.
func TestKilledProcess(t *testing.T) {
	k := sqliteKind()
	file := filepath.Join(t.TempDir(), "limits.db")
	db := k.databaseAt(t, file)
	s := db.newStore(t, nil)
	taken := int64(0)
	for round := range 5 {
		ctx, cancel := context.WithCancel(t.Context())
		process := exec.CommandContext(ctx, os.Args[0])
		process.Env = append(os.Environ(), fileVariable+"="+file)
		out, err := process.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := process.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			if lines.Text() != "taken" {
				t.Fatal(lines.Text())
			}
			if taken++; n == 300+100*round {
				cancel() // which kills it
			}
		}
		cancel()
		_ = process.Wait()
		used := usedOf(t, s)
		if used < taken || used > taken+takers {
			t.Errorf("%d were acknowledged, %d are in the file", taken, used)
		}
		t.Logf("%d were acknowledged, %d are in the file", taken, used)
		taken = used
	}
}

func usedOf(t *testing.T, s driver.Store) int64 {
	t.Helper()
	d := driver.Demand{Key: "k", N: 1, Algorithm: yearly, Op: driver.OpPeek}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		res, err := s.Take(ctx, d)
		if err == nil {
			return yearly.Limit().Max - res.Remaining
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

// TestCrashedServer: what a server had acknowledged is there after a crash, and of the rest no more
// than is unknown. PostgreSQL ends all sessions and recovers when one of its processes is killed.
// Any server recovers when all are killed and it is started again.
func TestCrashedServer(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		setting := "fsync=on"
		switch k.dialect {
		case sqlstore.SQLite:
			t.Skip("it has no server")
		case sqlstore.MySQL:
			setting = "innodb_flush_log_at_trx_commit=1"
		}
		server := k.startServer(t, setting)
		db := k.databaseAt(t, server.address)
		db.admin.SetMaxIdleConns(0) // they would break
		s := db.newStore(t, &sqlstore.Options{Timeout: 3 * time.Second})
		var wg sync.WaitGroup
		var over atomic.Bool
		defer wg.Wait()
		defer over.Store(true)
		var taken, unknown, failed atomic.Int64
		var left sync.Map // what acknowledgments said was left
		for range takers {
			wg.Go(func() {
				for !over.Load() {
					d := driver.Demand{Key: "k", N: 1, Algorithm: yearly}
					res, err := s.Take(t.Context(), d)
					switch {
					case err == nil:
						taken.Add(1)
						if _, twice := left.LoadOrStore(res.Remaining, true); twice {
							t.Error("an acknowledged unit was forgotten, and taken again")
						}
					case errors.Is(err, driver.ErrOutcomeUnknown):
						unknown.Add(1)
					default:
						failed.Add(1)
						time.Sleep(10 * time.Millisecond)
					}
				}
			})
		}
		servesAgain := func() {
			before := taken.Load()
			servers.Within(t, func() bool { return taken.Load() > before+takers },
				"the server does not serve")
		}
		for range depth.Of(1, 4) {
			servesAgain()
			time.Sleep(300 * time.Millisecond)
			if k.dialect == sqlstore.PostgreSQL {
				var pid string
				if err := db.admin.QueryRow("SELECT pid FROM pg_stat_activity WHERE " +
					"backend_type = 'client backend' AND pid <> pg_backend_pid() LIMIT 1").
					Scan(&pid); err != nil {
					t.Fatal(err)
				}
				server.Exec(t, "kill", "-9", pid)
				servesAgain()
				time.Sleep(300 * time.Millisecond)
			}
			server.killAll(t)
		}
		servesAgain()
		over.Store(true)
		wg.Wait()
		used := usedOf(t, s)
		t.Logf("%d acknowledged, %d unknown, %d others failed, %d recorded", taken.Load(),
			unknown.Load(), failed.Load(), used)
		if used < taken.Load() || used > taken.Load()+unknown.Load() {
			t.Errorf("%d are recorded, %d were acknowledged, %d are unknown", used, taken.Load(),
				unknown.Load())
		}
		if failed.Load()+unknown.Load() == 0 {
			t.Error("no call failed: this test proves nothing")
		}
	})
}
