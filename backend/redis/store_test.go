package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit/algorithm"
	redisstore "github.com/truewindow/ratelimit/backend/redis"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
)

var perMinute = algorithm.SlidingLog(driver.PerMinute("minute", 10))

func take(key string) driver.Demand {
	return driver.Demand{Key: key, Algorithm: perMinute, N: 1}
}

func newStore(
	t *testing.T, client redis.UniversalClient, opts *serverstore.Options,
) *redisstore.Store {
	t.Helper()
	t.Cleanup(func() { client.Close() })
	s, err := redisstore.New(client, opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestNewRefuses(t *testing.T) {
	client := redis.NewClient(&redis.Options{})
	defer client.Close()
	shards := func(n int) *redis.Ring {
		addrs := map[string]string{}
		for i := range n {
			addrs[string(rune('a'+i))] = refused(t)
		}
		ring := redis.NewRing(&redis.RingOptions{Addrs: addrs})
		t.Cleanup(func() { ring.Close() })
		return ring
	}
	for _, tt := range []struct {
		what   string
		client redis.UniversalClient
		opts   *serverstore.Options
		ok     bool
	}{
		{"no client", nil, nil, false},
		{"nil *Client", (*redis.Client)(nil), nil, false},
		{"nil *ClusterClient", (*redis.ClusterClient)(nil), nil, false},
		{"nil *Ring", (*redis.Ring)(nil), nil, false},
		{"Ring of two shards", shards(2), nil, false},
		{"Ring of one shard", shards(1), nil, true},
		{"brace in the prefix", client, &serverstore.Options{Prefix: "a{b"}, false},
		{"negative Timeout", client, &serverstore.Options{Timeout: -1}, false},
		{"no options", client, nil, true},
		{"zero options", client, &serverstore.Options{}, true},
	} {
		s, err := redisstore.New(tt.client, tt.opts)
		if ok := err == nil; ok != tt.ok || ok != (s != nil) ||
			!ok && !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: %v", tt.what, err)
		}
		if ring := strings.HasPrefix(tt.what, "Ring of two"); ring != errors.Is(err,
			errors.ErrUnsupported) {
			t.Errorf("%s: %v", tt.what, err)
		}
	}
}

// TestRefusedBeforeIO: demands that CheckTake refuses fail before the client dials.
func TestRefusedBeforeIO(t *testing.T) {
	dialled := 0
	client := redis.NewClient(&redis.Options{Dialer: func(context.Context, string,
		string) (net.Conn, error) {
		dialled++
		return nil, errors.New("no network")
	}})
	s := newStore(t, client, nil)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	big := take("k")
	big.N = 11
	for _, tt := range []struct {
		ctx  context.Context
		ds   []driver.Demand
		want error
	}{
		{t.Context(), []driver.Demand{{}}, driver.ErrInvalid},
		{t.Context(), []driver.Demand{take("")}, driver.ErrInvalid},
		{t.Context(), []driver.Demand{big}, driver.ErrExceedsLimit},
		{t.Context(), []driver.Demand{take("k"), take("k")}, driver.ErrInvalid},
		{t.Context(), []driver.Demand{{Key: "k", Algorithm: noScript{perMinute}, N: 1}},
			driver.ErrNoScript},
		{ended, []driver.Demand{take("k")}, context.Canceled},
	} {
		if len(tt.ds) == 1 {
			if _, err := s.Take(tt.ctx, tt.ds[0]); !errors.Is(err, tt.want) {
				t.Errorf("Take: %v, want %v", err, tt.want)
			}
		}
		if err := s.TakeAll(tt.ctx, tt.ds, make([]driver.Result, len(tt.ds))); !errors.Is(err,
			tt.want) {
			t.Errorf("TakeAll: %v, want %v", err, tt.want)
		}
	}
	if dialled != 0 {
		t.Errorf("dialled %d times", dialled)
	}
}

// noScript is the log without its Lua.
type noScript struct{ algorithm.Log }

func (noScript) Script() driver.Script { return driver.Script{} }

// TestSeveralSlots: TakeAll on a cluster fails before any I/O if the keys are in several slots.
func TestSeveralSlots(t *testing.T) {
	var asked atomic.Bool
	client := redis.NewClusterClient(&redis.ClusterOptions{
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			asked.Store(true)
			return nil, errors.New("no cluster")
		},
	})
	s := newStore(t, client, nil)
	err := s.TakeAll(t.Context(), []driver.Demand{take("a"), take("b")},
		make([]driver.Result, 2))
	if !errors.Is(err, errors.ErrUnsupported) || asked.Load() {
		t.Errorf("TakeAll of two slots: %v; I/O: %t", err, asked.Load())
	}
	tagged := newStore(t, client, &serverstore.Options{Tag: func(string) string { return "t" }})
	err = tagged.TakeAll(t.Context(), []driver.Demand{take("a"), take("b")},
		make([]driver.Result, 2))
	if errors.Is(err, errors.ErrUnsupported) || !asked.Load() {
		t.Errorf("TakeAll of one slot: %v; I/O: %t", err, asked.Load())
	}
}

// TestNoServer: a demand that reaches no server fails with ErrUnavailable and not with
// ErrOutcomeUnknown.
func TestNoServer(t *testing.T) {
	closed := redis.NewClient(&redis.Options{})
	closed.Close()
	closedCluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{refused(t)}})
	closedCluster.Close()
	silent := listen(t, func(net.Conn) {})
	busy := redis.NewClient(&redis.Options{Addr: silent, PoolSize: 1,
		PoolTimeout: 10 * time.Millisecond})
	for _, tt := range []struct {
		what   string
		client redis.UniversalClient
		cause  error
	}{
		{"closed client", closed, redis.ErrClosed},
		{"closed cluster client", closedCluster, nil},
		{"refused", redis.NewClient(&redis.Options{Addr: refused(t)}), nil},
		{"refused by a cluster",
			redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{refused(t)}}), nil},
		{"no handshake", redis.NewClient(&redis.Options{Addr: silent}), context.DeadlineExceeded},
		{"no connection free", busy, redis.ErrPoolTimeout},
		{"not a Redis", redis.NewClient(&redis.Options{Addr: listen(t, func(c net.Conn) {
			c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
		})}), nil},
	} {
		t.Run(tt.what, func(t *testing.T) {
			s := newStore(t, tt.client, nil)
			if tt.client == redis.UniversalClient(busy) {
				go busy.Ping(context.Background())
				for busy.PoolStats().TotalConns == 0 {
					time.Sleep(time.Millisecond) // until the only connection is taken
				}
			}
			onceInTime(t, func() error {
				start := time.Now()
				_, err := s.Take(t.Context(), take("secret"))
				took := time.Since(start)
				if !errors.Is(err, driver.ErrUnavailable) ||
					errors.Is(err, driver.ErrOutcomeUnknown) {
					t.Errorf("%v, want ErrUnavailable", err)
				}
				if strings.Contains(err.Error(), "secret") {
					t.Errorf("%v has the key", err)
				}
				if took > 150*time.Millisecond || tt.cause != nil && !errors.Is(err, tt.cause) {
					return fmt.Errorf("%w after %v, want %w within 150ms", err, took, tt.cause)
				}
				return nil
			})
		})
	}
}

// TestDeadline: with a client that hangs, a call returns in time, with the cause in its error.
func TestDeadline(t *testing.T) {
	silent := listen(t, func(net.Conn) {})
	s := newStore(t, redis.NewClient(&redis.Options{Addr: silent}),
		&serverstore.Options{Timeout: 50 * time.Millisecond})
	for _, tt := range []struct {
		what  string
		ctx   func(context.Context) (context.Context, context.CancelFunc)
		after time.Duration
		cause error
	}{
		{"the store's", context.WithCancel, 50 * time.Millisecond, context.DeadlineExceeded},
		{"the caller's", func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 10*time.Millisecond)
		}, 10 * time.Millisecond, context.DeadlineExceeded},
		{"cancelled", func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(10*time.Millisecond, cancel)
			return ctx, cancel
		}, 10 * time.Millisecond, context.Canceled},
	} {
		onceInTime(t, func() error {
			ctx, cancel := tt.ctx(t.Context())
			defer cancel()
			start := time.Now()
			_, err := s.Take(ctx, take("k"))
			took := time.Since(start)
			if !errors.Is(err, driver.ErrUnavailable) || took < tt.after/2 {
				t.Errorf("%s: %v after %v, want %v after %v", tt.what, err, took,
					driver.ErrUnavailable, tt.after)
			}
			if !errors.Is(err, tt.cause) || took > tt.after+50*time.Millisecond {
				return fmt.Errorf("%s: %w after %v, want %w after %v", tt.what, err, took, tt.cause,
					tt.after)
			}
			return nil
		})
	}
}

// onceInTime tries up to ten times, since a busy machine may make any of them late.
func onceInTime(t *testing.T, try func() error) {
	t.Helper()
	var err error
	for range 10 {
		if err = try(); err == nil {
			return
		}
	}
	t.Error(err)
}

// TestPanickingHook: a panic of a caller's hook reaches the caller, who can recover it.
func TestPanickingHook(t *testing.T) {
	client := redis.NewClient(&redis.Options{})
	client.AddHook(panicking{})
	s := newStore(t, client, nil)
	defer func() {
		if got := recover(); got != "hook" {
			t.Errorf("recovered %v", got)
		}
	}()
	s.Take(t.Context(), take("k"))
	t.Error("no panic")
}

type panicking struct{}

func (panicking) DialHook(next redis.DialHook) redis.DialHook { return next }
func (panicking) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(context.Context, redis.Cmder) error { panic("hook") }
}
func (panicking) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestKeyIsNotTraced: what tracing hooks can print of a command does not contain the key.
func TestKeyIsNotTraced(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: refused(t)})
	var tr tracing
	client.AddHook(&tr)
	s := newStore(t, client, nil)
	s.Take(t.Context(), take("secret"))
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if !slices.ContainsFunc(tr.seen,
		func(s string) bool { return strings.HasPrefix(s, "evalsha ") }) {
		t.Errorf("the hook saw %q", tr.seen)
	}
	if strings.Contains(strings.Join(tr.seen, " "), "secret") {
		t.Errorf("the hook saw %q", tr.seen)
	}
}

type tracing struct {
	panicking
	mu   sync.Mutex
	seen []string
}

func (tr *tracing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		tr.mu.Lock()
		tr.seen = append(tr.seen, cmd.String())
		tr.mu.Unlock()
		return next(ctx, cmd)
	}
}

// refused returns an address that refuses connections.
func refused(t *testing.T) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	return l.Addr().String()
}

// listen accepts connections, calls greet for each and keeps them open to the end of the test.
func listen(t *testing.T, greet func(net.Conn)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var (
		mu    sync.Mutex
		conns []net.Conn
	)
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		defer mu.Unlock()
		for _, c := range conns {
			c.Close()
		}
	})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			greet(c)
		}
	}()
	return l.Addr().String()
}
