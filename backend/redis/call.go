package redisstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend/internal/server"
)

// call is one run of a script on its way to the server and back. It belongs to the client until run returns, also when its caller
// has left, so it holds copies of all it needs.
type call struct {
	store  *Store
	script algorithm.Call
	keys   []string
	gate   server.Gate
	reply  string
}

// prepare makes c the call that decides ds together.
func (c *call) prepare(ds []ratelimit.Demand) error {
	s := c.store
	c.gate.Reset()
	c.reply = ""
	clear(c.keys)
	c.keys = c.keys[:0]
	for i := range ds {
		c.keys = append(c.keys, s.keys.Key(ds[i]))
	}
	if s.cluster != nil && !server.OneSlot(c.keys) {
		return fmt.Errorf("redisstore: keys of several slots in one TakeAll on a cluster: %w", errors.ErrUnsupported)
	}
	now := int64(0)
	if s.now != nil {
		now = s.now()
	}
	c.script.Begin(now)
	return c.script.Add(c.keys, ds)
}

// run sends the script by its name, and whole to a server that does not know the name.
func (c *call) run(ctx context.Context) error {
	program := c.script.Program()
	err := c.send(ctx, "evalsha", program.SHA, unknownSHA)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") && c.gate.Shut() {
		err = c.send(ctx, "eval", program.Source, emptyScript)
	}
	return err
}

func (c *call) send(ctx context.Context, verb, script, blank string) error {
	keys, argv := c.script.Keys(), c.script.Args()
	args := make([]any, 0, firstKey+len(keys)+len(argv))
	args = append(args, verb, &gated{&c.gate, script, blank}, len(keys))
	// By pointer: no allocation for each, and tracing hooks that print arguments print no keys.
	for i := range keys {
		args = append(args, &keys[i])
	}
	for i := range argv {
		args = append(args, &argv[i])
	}
	cmd := command{redis.NewStringCmd(ctx, args...)}
	cmd.SetFirstKeyPos(firstKey)
	cmd.SetStepCount(1) // or a cluster's client asks for the table of all commands
	if err := c.store.client.Process(ctx, cmd); err != nil {
		return err
	}
	var err error
	c.reply, err = cmd.Result()
	return err
}

// firstKey is the position of the first key in EVAL and EVALSHA.
const firstKey = 3

// command is a command that go-redis sends once, whatever it is set to; only where a server answers that it did not run it,
// with MOVED, ASK or READONLY, does it go to another.
type command struct {
	*redis.StringCmd
}

func (command) NoRetry() bool { return true }

func (c command) Clone() redis.Cmder {
	return command{c.StringCmd.Clone().(*redis.StringCmd)}
}

// gated is the argument of EVALSHA or EVAL that names the script. The client asks for its bytes when it writes the command, which is how we
// know whether the command may have been sent. When the caller has left by then, the argument is blank and the server runs
// nothing; an error in its place would cost the connection, and fail others' commands in a pipeline.
type gated struct {
	gate          *server.Gate
	script, blank string
}

const (
	unknownSHA  = "0000000000000000000000000000000000000000" // the server answers NOSCRIPT
	emptyScript = "return ''"
)

func (g *gated) MarshalBinary() ([]byte, error) {
	if !g.gate.Open() {
		return []byte(g.blank), nil
	}
	return []byte(g.script), nil
}

// String is what hooks print.
func (g *gated) String() string { return g.script }
