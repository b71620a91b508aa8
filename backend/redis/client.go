package redisstore

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit/backend/internal/gate"
	"github.com/truewindow/ratelimit/backend/internal/server"
)

// client makes a [server.Client] of go-redis.
type client struct {
	redis   redis.UniversalClient
	cluster clusterClient // redis, if it is one; else nil

	started time.Time
	// when the state of the cluster may be reloaded next, as a time since started
	nextReload atomic.Int64
	reloads    atomic.Int64 // in flight

	known atomic.Bool // the client has the cluster's state
}

var _ server.Client = (*client)(nil)

// clusterClient is a *redis.ClusterClient, or a type that embeds one.
type clusterClient interface {
	MasterForKey(ctx context.Context, key string) (*redis.Client, error)
	ForEachMaster(ctx context.Context, f func(context.Context, *redis.Client) error) error
}

func (c *client) Run(ctx context.Context, cmd *server.Command) {
	sent := newCommand(ctx, cmd)
	if cmd.Err = c.redis.Process(ctx, sent); cmd.Err != nil {
		return
	}
	c.answered()
	cmd.Reply, cmd.Err = sent.Result()
}

func newCommand(ctx context.Context, c *server.Command) command {
	args := make([]any, 0, firstKey+len(c.Keys)+len(c.Args))
	name := &gated{gate: c.Gate, script: c.Script, blank: blank[c.Verb]}
	args = append(args, c.Verb, name, len(c.Keys))
	// By pointer: no allocation for each, and tracing hooks that print arguments print no keys.
	for i := range c.Keys {
		args = append(args, &c.Keys[i])
	}
	for i := range c.Args {
		args = append(args, &c.Args[i])
	}
	cmd := command{redis.NewStringCmd(ctx, args...), name}
	cmd.SetFirstKeyPos(firstKey)
	cmd.SetStepCount(1) // without it a cluster's client sends COMMAND first
	return cmd
}

// firstKey is the position of the first key in EVAL and EVALSHA.
const firstKey = 3

// command is a command that go-redis sends once, whatever its settings for retries. It goes to
// another server only after MOVED, ASK or READONLY, by which a server reports that it did not run
// the command.
type command struct {
	*redis.StringCmd
	name *gated
}

func (command) NoRetry() bool { return true }

func (c command) Clone() redis.Cmder {
	return command{c.StringCmd.Clone().(*redis.StringCmd), c.name}
}

// gated is the argument of EVALSHA or EVAL that names the script. The client calls MarshalBinary
// when it writes the command, which opens the gate. If no caller waits by then, the argument is
// blank and the server runs nothing. An error instead would close the connection and fail the other
// commands of a pipeline.
type gated struct {
	gate          *gate.Gate
	script, blank string

	open       bool // written and not answered yet
	redirected bool // answered MOVED or ASK
}

var blank = map[string]string{
	"evalsha": "0000000000000000000000000000000000000000", // the server answers NOSCRIPT
	"eval":    "return ''",
}

func (g *gated) MarshalBinary() ([]byte, error) {
	g.open = true
	if !g.gate.Open() {
		return []byte(g.blank), nil
	}
	return []byte(g.script), nil
}

// String is what hooks print.
func (g *gated) String() string { return g.script }

// Infos sends INFO to all primaries of a cluster.
func (c *client) Infos(ctx context.Context) ([]string, error) {
	if c.cluster == nil {
		text, err := c.redis.Info(ctx).Result()
		return []string{text}, err
	}
	var (
		mu    sync.Mutex
		infos []string
	)
	err := c.cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		text, err := node.Info(ctx).Result()
		mu.Lock()
		defer mu.Unlock()
		infos = append(infos, text)
		return err
	})
	return infos, err
}

func (c *client) ErrorReply(err error) (text string, ok bool) {
	var reply redis.Error
	if errors.As(err, &reply) && !errors.Is(err, redis.Nil) {
		return reply.Error(), true
	}
	return "", false
}

func (c *client) Unsent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" || errors.Is(err, redis.ErrPoolTimeout) ||
		errors.Is(err, redis.ErrPoolExhausted) || errors.Is(err, redis.ErrClosed)
}

const (
	reloadInterval = 200 * time.Millisecond
	reloadTimeout  = time.Second
	maxReloads     = 64 // in flight
)

// Lost makes a cluster's client reload which server has which slot. By itself the client does not
// do so when a server stops answering, and would find the new primary only a minute later. A reload
// queries one node. If that is the lost one, it waits as long as for any command: 5s by default,
// and half a minute if it has to connect. ReloadState would wait too and begin no other reload
// meanwhile, so each reload here is independent.
func (c *client) Lost(err error) {
	if c.cluster == nil || errors.Is(err, context.Canceled) {
		return
	}
	now := time.Since(c.started)
	next := c.nextReload.Load()
	if int64(now) < next || !c.nextReload.CompareAndSwap(next, int64(now+reloadInterval)) {
		return
	}
	if c.reloads.Add(1) > maxReloads {
		c.reloads.Add(-1)
		return
	}
	go func() {
		defer c.reloads.Add(-1)
		ctx, cancel := context.WithTimeout(context.Background(), reloadTimeout)
		defer cancel()
		// ForEachMaster is the only function that reloads at once. The function for the primaries
		// does nothing.
		_ = c.cluster.ForEachMaster(ctx, func(context.Context, *redis.Client) error { return nil })
	}()
}

func (c *client) Cluster() bool { return c.cluster != nil }

func (c *client) answered() {
	if !c.known.Load() {
		c.known.Store(true)
	}
}
