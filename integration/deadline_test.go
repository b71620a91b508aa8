package integration

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/valkey-io/valkey-go"

	"github.com/truewindow/ratelimit"
	redisstore "github.com/truewindow/ratelimit/backend/redis"
	rueidisstore "github.com/truewindow/ratelimit/backend/rueidis"
	valkeystore "github.com/truewindow/ratelimit/backend/valkey"
)

// TestNarrowClients freezes a server for clients that have hardly any room: one connection, and a queue of two commands. All who want something
// are answered by their deadline, wherever the client keeps them waiting: for a connection, for a place in its queue, for an answer.
func TestNarrowClients(t *testing.T) {
	eachImage(t, "redis:8", func(t *testing.T, image string) {
		s := startServer(t, image)
		d := dialing{addrs: []string{s.addr}}
		stores := make(map[string]probing)
		for _, alone := range []bool{false, true} {
			for _, lib := range libraries {
				name := lib.name
				if alone {
					name += ", alone"
				}
				stores[name] = narrow(t, lib, d).newStore(t, &redisstore.Options{Alone: alone})
				decided(t, stores[name], take(freshKey(t)))
			}
		}
		s.pause(t)
		defer s.unpause(t) // before clients are closed, which wait
		for name, store := range stores {
			t.Run(name, func(t *testing.T) { narrowly(t, store) })
		}
		t.Run("Open", func(t *testing.T) {
			eachCaching(t, func(t *testing.T, lib library) {
				const most = 500 * time.Millisecond // for each step of making a connection
				answeredWithin(t, 3*most, "Open", func() error {
					s, err := lib.caching(d)(&redisstore.Options{})
					if err == nil {
						s.Close()
					}
					return err
				})
			})
		})
	})
}

// narrow returns a client with hardly any room.
func narrow(t *testing.T, lib library, d dialing) anyClient {
	t.Helper()
	switch lib.name {
	case "rueidis":
		opts := d.rueidisOption()
		opts.RingScaleEachConn, opts.PipelineMultiplex = 1, -1
		c, err := rueidis.NewClient(opts)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return anyClient{store: func(opts *redisstore.Options) (probing, error) {
			s, err := rueidisstore.New(c, ratelimit.FailClosed, (*rueidisstore.Options)(opts))
			return rueidisStore{s}, err
		}}
	case "valkey-go":
		opts := d.valkeyOption()
		opts.RingScaleEachConn, opts.PipelineMultiplex = 1, -1
		c, err := valkey.NewClient(opts)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return anyClient{store: func(opts *redisstore.Options) (probing, error) {
			s, err := valkeystore.New(c, ratelimit.FailClosed, (*valkeystore.Options)(opts))
			return valkeyStore{s}, err
		}}
	}
	c := redis.NewClient(&redis.Options{Addr: d.addrs[0], PoolSize: 1})
	t.Cleanup(func() { c.Close() })
	return goRedisClient(c)
}

// narrowly has many wait at once, each for something else and no longer than he says.
func narrowly(t *testing.T, store probing) {
	const callers = 20
	within := func(d time.Duration) context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		t.Cleanup(cancel)
		return ctx
	}
	all := []ratelimit.Demand{take(freshKey(t)), take(freshKey(t))}
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			answeredWithin(t, 100*time.Millisecond, "Take", func() error {
				_, err := store.Take(context.Background(), all[0])
				return err
			})
		})
		wg.Go(func() {
			answeredWithin(t, 30*time.Millisecond, "Take with a deadline", func() error {
				_, err := store.Take(within(30*time.Millisecond), all[0])
				return err
			})
		})
		wg.Go(func() {
			answeredWithin(t, 100*time.Millisecond, "TakeAll", func() error {
				return store.TakeAll(context.Background(), all, make([]ratelimit.Result, len(all)))
			})
		})
	}
	wg.Wait()
	answeredWithin(t, 50*time.Millisecond, "Probe", func() error {
		_, err := store.probe(within(50 * time.Millisecond))
		return err
	})
}

// narrowSlack is what a busy machine may add with so many callers. A client that is waited for takes 3s and more.
const narrowSlack = 2 * time.Second

// answeredWithin wants an error of a store that is away, in time but for what a busy machine adds.
func answeredWithin(t *testing.T, d time.Duration, what string, call func() error) {
	t.Helper()
	start := time.Now()
	err := call()
	if took := time.Since(start); took > d+narrowSlack {
		t.Errorf("%s was answered after %v", what, took)
	}
	if !errors.Is(err, ratelimit.ErrUnavailable) {
		t.Errorf("%s: %v, want ErrUnavailable", what, err)
	}
}
