package main

import (
	"context"
	"database/sql"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "modernc.org/sqlite"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend/postgres"
	sqlstore "github.com/truewindow/ratelimit/backend/sql"
	"github.com/truewindow/ratelimit/driver"
)

// upsert is a fixed window by one statement, which is what people write.
const upsert = `INSERT INTO hits (name, period, n) VALUES (%s, %s, 1)
	ON CONFLICT (name, period) DO UPDATE SET n = hits.n + 1 RETURNING n`

// BenchmarkDatabase measures decisions in a database beside a fixed window by one statement, with
// commits that wait for the disk and with others.
func BenchmarkDatabase(b *testing.B) {
	for _, durable := range []string{"on", "off"} {
		b.Run("postgresql/synchronous_commit="+durable, func(b *testing.B) {
			dsn := postgreSQL(b) + " options='-c synchronous_commit=" + durable + "'"
			benchmarkDatabase(b, "", dsn, sqlstore.PostgreSQL,
				fmt.Sprintf(upsert, "$1::text", "$2::bigint"))
		})
	}
	for _, durable := range []string{"FULL", "NORMAL"} {
		b.Run("sqlite/synchronous="+durable, func(b *testing.B) {
			dsn := "file:" + filepath.Join(b.TempDir(), "limits.db") +
				"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)&_pragma=synchronous(" +
				durable + ")"
			benchmarkDatabase(b, "sqlite", dsn, sqlstore.SQLite, fmt.Sprintf(upsert, "?", "?"))
		})
	}
}

// open opens a pool of a driver, or one of package postgres.
func open(name, dsn string) (*sql.DB, error) {
	if name != "" {
		return sql.Open(name, dsn)
	}
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	return postgres.OpenDB(*config), nil
}

func benchmarkDatabase(b *testing.B, name, dsn string, d sqlstore.Dialect, statement string) {
	ctx := context.Background()
	db, err := open(name, dsn)
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	conns := 32
	if d == sqlstore.SQLite {
		conns = 1
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	store, err := sqlstore.New(db, d, &sqlstore.Options{Timeout: time.Minute})
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	if err := store.Migrate(ctx); err != nil {
		b.Fatal(err)
	}
	for _, table := range []string{"DROP TABLE IF EXISTS hits", "CREATE TABLE hits (name text, " +
		"period bigint, n bigint, PRIMARY KEY (name, period))"} {
		if _, err := db.ExecContext(ctx, table); err != nil {
			b.Fatal(err)
		}
	}
	limit := algorithm.GCRA(driver.PerHour("calls", 1_000_000_000))
	entries := []struct {
		name string
		take func(key string) error
	}{
		{ours, func(key string) error {
			_, err := store.Take(ctx, driver.Demand{Key: key, N: 1, Algorithm: limit})
			return err
		}},
		{"upsert", func(key string) error {
			var n int64
			return db.QueryRowContext(ctx, statement, key, time.Now().Unix()/3600).Scan(&n)
		}},
	}
	for _, load := range []struct{ keys, callers int }{{1, 64}, {10_000, 64}, {1, 1}} {
		for _, entry := range entries {
			b.Run(fmt.Sprintf("keys=%d/callers=%d/entry=%s", load.keys, load.callers, entry.name),
				func(b *testing.B) {
					var next atomic.Int64
					var wg sync.WaitGroup
					var took time.Duration
					decided := 0
					for b.Loop() {
						began := time.Now()
						var n atomic.Int64
						for range load.callers {
							wg.Go(func() {
								for time.Since(began) < time.Second {
									i := next.Add(1) * 7919 % int64(load.keys)
									if err := entry.take(fmt.Sprint("user:", i)); err != nil {
										b.Error(err)
										return
									}
									n.Add(1)
								}
							})
						}
						wg.Wait()
						took += time.Since(began)
						decided += int(n.Load())
					}
					b.ReportMetric(float64(decided)/took.Seconds(), "decisions/s")
					b.ReportMetric(took.Seconds()*1e6*float64(load.callers)/float64(decided),
						"µs/call")
					b.ReportMetric(0, "ns/op")
				})
		}
	}
}

// postgreSQL starts a server in a container, and returns how to connect.
func postgreSQL(b *testing.B) string {
	b.Helper()
	id, err := docker("run", "--detach", "--rm", "--env", "POSTGRES_PASSWORD=of-a-test",
		"postgres:17", "postgres", "-c", "max_connections=100")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _, _ = docker("rm", "--force", id) })
	ip, err := docker("inspect", "--format",
		"{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", id)
	if err != nil {
		b.Fatal(err)
	}
	dsn := "host=" + ip + " user=postgres password=of-a-test dbname=postgres sslmode=disable"
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	for begin := time.Now(); db.Ping() != nil; {
		if time.Sleep(100 * time.Millisecond); time.Since(begin) > time.Minute {
			b.Fatal("the server does not answer")
		}
	}
	return dsn
}

func docker(args ...string) (out string, err error) {
	text, err := exec.Command("docker", args...).Output()
	return strings.TrimSpace(string(text)), err
}
