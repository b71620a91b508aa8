package stores

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
	rueidisstore "github.com/truewindow/ratelimit/backend/rueidis"
	"github.com/truewindow/ratelimit/backend/serverstore"
	valkeystore "github.com/truewindow/ratelimit/backend/valkey"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/clients"
	"github.com/truewindow/ratelimit/integration/servers"
)

// TestNarrowClients freezes a server whose clients have one connection and a queue of two commands.
// Every call returns by its deadline, whatever it waits for: a connection, a place in the queue, or
// an answer.
func TestNarrowClients(t *testing.T) {
	servers.OneImage(t, "redis:8", func(t *testing.T, image string) {
		s := servers.Start(t, image)
		d := clients.Dialing{Addrs: []string{s.Addr}}
		stores := make(map[string]clients.Probing)
		for how, opts := range map[string]serverstore.Options{
			"": {}, ", alone": {NoBatching: true}, ", lingering": {Linger: 20 * time.Millisecond},
		} {
			for _, lib := range clients.Libraries {
				name := lib.Name + how
				stores[name] = narrow(t, lib, d).NewStore(t, &opts)
				clients.Decided(t, stores[name], clients.Take(servers.FreshKey(t)))
			}
		}
		s.Pause(t)
		defer s.Unpause(t) // before the clients are closed, which would wait
		for name, store := range stores {
			t.Run(name, func(t *testing.T) { narrowly(t, store) })
		}
		t.Run("Open", func(t *testing.T) {
			clients.EachCaching(t, func(t *testing.T, lib clients.Library) {
				const most = 500 * time.Millisecond // timeout of each step of connecting
				answeredWithin(t, 3*most, "Open", func() error {
					s, err := lib.Caching(d)(&serverstore.Options{})
					if err == nil {
						s.Close()
					}
					return err
				})
			})
		})
	})
}

// narrow returns a client with one connection and a short queue.
func narrow(t *testing.T, lib clients.Library, d clients.Dialing) clients.Client {
	t.Helper()
	switch lib.Name {
	case "rueidis":
		opts := d.RueidisOption()
		opts.RingScaleEachConn, opts.PipelineMultiplex = 1, -1
		c, err := rueidis.NewClient(opts)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return clients.Client{Store: func(opts *serverstore.Options) (clients.Probing, error) {
			return rueidisstore.New(c, opts)
		}}
	case "valkey-go":
		opts := d.ValkeyOption()
		opts.RingScaleEachConn, opts.PipelineMultiplex = 1, -1
		c, err := valkey.NewClient(opts)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return clients.Client{Store: func(opts *serverstore.Options) (clients.Probing, error) {
			return valkeystore.New(c, opts)
		}}
	}
	c := redis.NewClient(&redis.Options{Addr: d.Addrs[0], PoolSize: 1})
	t.Cleanup(func() { c.Close() })
	return clients.GoRedis(c)
}

// narrowly makes many different calls at once, each with a deadline.
func narrowly(t *testing.T, store clients.Probing) {
	const callers = 20
	within := func(d time.Duration) context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		t.Cleanup(cancel)
		return ctx
	}
	all := []driver.Demand{clients.Take(servers.FreshKey(t)), clients.Take(servers.FreshKey(t))}
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
		_, err := store.Probe(within(50 * time.Millisecond))
		return err
	})
}

// narrowSlack is how much a busy machine may add with that many callers. A call that waits for the
// client itself takes 3s or more.
const narrowSlack = 2 * time.Second

// answeredWithin checks that a call on an unavailable server fails in time.
func answeredWithin(t *testing.T, d time.Duration, what string, call func() error) {
	t.Helper()
	start := time.Now()
	err := call()
	if took := time.Since(start); took > d+narrowSlack {
		t.Errorf("%s returned after %v, want at most %v", what, took, d+narrowSlack)
	}
	if !errors.Is(err, ratelimit.ErrUnavailable) {
		t.Errorf("%s: got %v, want ErrUnavailable", what, err)
	}
}
