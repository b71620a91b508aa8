package redisstore_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend/lua"
	redisstore "github.com/truewindow/ratelimit/backend/redis"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
)

// BenchmarkOverhead compares a decision of the store with the same script sent by the client's own
// EVALSHA. The difference is what the deadline and sending once cost.
func BenchmarkOverhead(b *testing.B) {
	eachServer(b, func(name string, open func(testing.TB) *redis.Client) {
		ctx := context.Background()
		client := open(b)
		s, err := redisstore.New(client,
			&serverstore.Options{Prefix: "overhead:", Timeout: time.Minute})
		if err != nil {
			b.Fatal(err)
		}
		d := driver.Demand{Key: "k", Algorithm: algorithm.SlidingLog(driver.PerDay("day", 1)),
			Op: driver.OpPeek, N: 1}

		var call lua.Run
		call.Begin(0)
		if err := call.Add([]string{"overhead:{=k}:24h0m0s:log3"},
			[]driver.Demand{d}); err != nil {
			b.Fatal(err)
		}
		args := make([]any, len(call.Args()))
		for i, a := range call.Args() {
			args[i] = a
		}
		sha := client.ScriptLoad(ctx, call.Program().Source).Val()

		for _, way := range []struct {
			name   string
			decide func() error
		}{
			{"evalsha",
				func() error { return client.EvalSha(ctx, sha, call.Keys(), args...).Err() }},
			{"store", func() error { _, err := s.Take(ctx, d); return err }},
		} {
			b.Run(name+"/c=1/"+way.name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := way.decide(); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run(name+"/c=64/"+way.name, func(b *testing.B) {
				b.ReportAllocs()
				b.SetParallelism(max(1, 64/runtime.GOMAXPROCS(0)))
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if err := way.decide(); err != nil {
							b.Error(err)
							return
						}
					}
				})
			})
		}
	})
}
