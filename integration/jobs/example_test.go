package jobs

import (
	"context"
	"log"

	"github.com/hibiken/asynq"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend/postgres"
	redisstore "github.com/truewindow/ratelimit/backend/redis"
	sqlstore "github.com/truewindow/ratelimit/backend/sql"
)

func Example_asynq() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	store, err := redisstore.New(client, nil)
	if err != nil {
		log.Fatal(err)
	}
	limits, err := NewLimits(store, ratelimit.PerMinute("quota", 100),
		algorithm.InFlight("running", 10))
	if err != nil {
		log.Fatal(err)
	}
	mux := asynq.NewServeMux()
	mux.Use(limits.Asynq)
	mux.HandleFunc("mail", func(context.Context, *asynq.Task) error { return nil })

	task := asynq.NewTaskWithHeaders("mail", nil, map[string]string{"tenant": "acme"})
	if _, err := asynq.NewClientFromRedisClient(client).Enqueue(task); err != nil {
		log.Fatal(err)
	}
	if err := asynq.NewServerFromRedisClient(client, AsynqConfig()).Run(mux); err != nil {
		log.Fatal(err)
	}
}

// Example_river returns a client. Its jobs and limits are in one database.
func Example_river() {
	_ = func(
		ctx context.Context, pool *pgxpool.Pool, workers *river.Workers,
	) (*river.Client[pgx.Tx], error) {
		db := postgres.OpenDB(*pool.Config().ConnConfig)
		store, err := sqlstore.New(db, sqlstore.PostgreSQL, nil)
		if err != nil {
			return nil, err
		}
		if err := store.Migrate(ctx); err != nil {
			return nil, err
		}
		limits, err := NewLimits(store, ratelimit.PerMinute("quota", 100),
			algorithm.InFlight("running", 10))
		if err != nil {
			return nil, err
		}
		return river.NewClient(riverpgxv5.New(pool), &river.Config{
			Queues: map[string]river.QueueConfig{
				river.QueueDefault: {MaxWorkers: 20}, Background: {MaxWorkers: 5},
			},
			Workers:    workers,
			Middleware: []rivertype.Middleware{limits.River()},
		})
	}
}
