package jobs

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend/postgres"
	sqlstore "github.com/truewindow/ratelimit/backend/sql"
	"github.com/truewindow/ratelimit/integration/servers"
)

const password = "of-a-test"

// startPostgres returns the URL of a server, to which the name of a database can be added.
func startPostgres(t *testing.T) string {
	t.Helper()
	server := servers.StartOther(t, "postgres:17", nil, "env", "POSTGRES_PASSWORD="+password,
		"docker-entrypoint.sh", "postgres", "-c", "fsync=off")
	url := "postgres://postgres:" + password + "@" + net.JoinHostPort(server.IP, "5432") + "/"
	pool := newPool(t, url+"postgres")
	servers.Await(t, func() (bool, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		return pool.Ping(ctx) == nil, nil
	})
	return url
}

func newPool(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// A riverTest has a database of its own.
type riverTest struct {
	*testing.T
	pool *pgxpool.Pool

	mu   sync.Mutex
	runs []riverRun
}

type riverRun struct {
	tenant string
	client int
	at     time.Time // by the server's clock
}

type riverArgs struct {
	Tenant string `json:"tenant"`
	Does   string `json:"does"`
}

func (riverArgs) Kind() string { return "job" }

func newRiverTest(t *testing.T, url, database string) *riverTest {
	t.Helper()
	admin := newPool(t, url+"postgres")
	if _, err := admin.Exec(t.Context(), "CREATE DATABASE "+database); err != nil {
		t.Fatal(err)
	}
	rt := &riverTest{T: t, pool: newPool(t, url+database)}
	migrator, err := rivermigrate.New(riverpgxv5.New(rt.pool), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := migrator.Migrate(t.Context(), rivermigrate.DirectionUp, nil); err != nil {
		t.Fatal(err)
	}
	return rt
}

// start starts a client with workers, and a store in the database of the jobs.
func (t *riverTest) start(
	number int, quota ratelimit.Limit, running int64, workers int,
) *river.Client[pgx.Tx] {
	t.Helper()
	db := postgres.OpenDB(*t.pool.Config().ConnConfig)
	t.Cleanup(func() { db.Close() })
	store, err := sqlstore.New(db, sqlstore.PostgreSQL,
		&sqlstore.Options{Timeout: servers.FaultTimeout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	if err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	limits, err := NewLimits(store, quota, algorithm.InFlight("running", running))
	if err != nil {
		t.Fatal(err)
	}
	work := river.NewWorkers()
	river.AddWorker(work, river.WorkFunc(func(
		ctx context.Context, job *river.Job[riverArgs],
	) error {
		var now time.Time
		if err := t.pool.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&now); err != nil {
			return err
		}
		t.mu.Lock()
		t.runs = append(t.runs, riverRun{job.Args.Tenant, number, now})
		t.mu.Unlock()
		switch job.Args.Does {
		case "fail":
			return errors.New("failed")
		case "panic":
			panic("a job")
		}
		return nil
	}))
	client, err := river.NewClient(riverpgxv5.New(t.pool), &river.Config{
		Queues: map[string]river.QueueConfig{
			river.QueueDefault: {MaxWorkers: workers},
			Background:         {MaxWorkers: workers},
		},
		Workers:           work,
		Middleware:        []rivertype.Middleware{limits.River()},
		Logger:            slog.New(slog.DiscardHandler),
		FetchCooldown:     10 * time.Millisecond,
		FetchPollInterval: 50 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return client
}

// insert inserts jobs that fail for good when one attempt has failed.
func (t *riverTest) insert(c *river.Client[pgx.Tx], tenant, queue, does string, n int) {
	t.Helper()
	for range n {
		_, err := c.Insert(t.Context(), riverArgs{tenant, does},
			&river.InsertOpts{Queue: queue, MaxAttempts: 1})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func (t *riverTest) runsOf(tenant string) (runs []riverRun) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.runs {
		if tenant == "" || r.tenant == tenant {
			runs = append(runs, r)
		}
	}
	return runs
}

// await waits until so many jobs are in a state that the condition names.
func (t *riverTest) await(n int, condition string, args ...any) {
	t.Helper()
	servers.Await(t, func() (bool, error) { return t.count(condition, args...) == n, nil })
}

func (t *riverTest) count(condition string, args ...any) (n int) {
	t.Helper()
	err := t.pool.QueryRow(t.Context(), "SELECT count(*) FROM river_job WHERE "+condition, args...).
		Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestRiver needs one server.
func TestRiver(t *testing.T) {
	url := startPostgres(t)

	// Two clients together work what the limits of a tenant admit, put back the rest for
	// RetryAfter, and go on with other tenants.
	t.Run("limits", func(t *testing.T) {
		rt := newRiverTest(t, url, "limits")
		began := time.Now()
		quota := ratelimit.PerHour("quota", 10)
		one := rt.start(1, quota, 2, 2)
		rt.start(2, quota, 2, 2)
		rt.insert(one, "ann", river.QueueDefault, "", 15)
		rt.insert(one, "bob", Background, "", 15)
		done, later := "state = 'completed' AND attempt = 1 AND args->>'tenant' = $1",
			"state = 'scheduled' AND attempt = 0 AND errors IS NULL AND scheduled_at >= $1"
		rt.await(10, done, "ann")
		rt.await(8, done, "bob")
		rt.insert(one, "bob", river.QueueDefault, "", 5)
		rt.await(10, done, "bob")
		rt.await(35-20, later, began.Add(time.Hour))
		clients := make(map[int]int)
		for _, r := range rt.runsOf("") {
			clients[r.client]++
		}
		if clients[1]+clients[2] != 20 || len(clients) != 2 {
			t.Errorf("ran by client %v", clients)
		}
		if n := rt.count("scheduled_at > $1", time.Now().Add(time.Hour)); n > 0 {
			t.Errorf("%d jobs are put back for longer than an hour", n)
		}
	})

	// A job that is put back runs after RetryAfter, as its first attempt.
	t.Run("comes back", func(t *testing.T) {
		rt := newRiverTest(t, url, "comes_back")
		quota := ratelimit.Limit{Name: "quota", Max: 2, Window: 2 * time.Second}
		var began time.Time
		err := rt.pool.QueryRow(t.Context(), "SELECT clock_timestamp()").Scan(&began)
		if err != nil {
			t.Fatal(err)
		}
		client := rt.start(1, quota, 5, 5)
		rt.insert(client, "ann", river.QueueDefault, "", 3)
		rt.await(3, "state = 'completed' AND attempt = 1 AND errors IS NULL")
		if third := rt.runsOf("ann")[2].at; third.Before(began.Add(quota.Window)) {
			t.Errorf("the third job ran %v after the start", third.Sub(began))
		}
		if n := rt.count("(metadata->>'snoozes')::int >= 1"); n != 1 {
			t.Errorf("%d jobs were put back", n)
		}
	})

	// A job that panics or fails is not running any more.
	t.Run("releases", func(t *testing.T) {
		rt := newRiverTest(t, url, "releases")
		began := time.Now()
		client := rt.start(1, ratelimit.PerHour("quota", 10), 1, 1)
		rt.insert(client, "ann", river.QueueDefault, "panic", 1)
		rt.insert(client, "ann", river.QueueDefault, "fail", 1)
		rt.insert(client, "ann", river.QueueDefault, "", 1)
		rt.await(1, "state = 'completed'")
		if took := time.Since(began); took > 30*time.Second { // half of the time-out
			t.Errorf("took %v", took)
		}
		rt.await(2, "state = 'discarded' AND attempt = 1 AND array_length(errors, 1) = 1")
	})
}
