package redisstore

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit/backend/internal/server"
)

var _ server.Router = (*client)(nil)

// Owner does no I/O: once a command has been answered the client has the cluster's state, and
// renews it in the background.
func (c *client) Owner(key string) string {
	if !c.known.Load() {
		return ""
	}
	node, err := c.cluster.MasterForKey(context.Background(), key)
	if err != nil {
		return ""
	}
	return node.Options().Addr
}

// RunAll sends a pipeline to each server. Because of NoRetry go-redis does not repeat a
// pipeline; it sends only the redirected commands to the other server.
func (c *client) RunAll(ctx context.Context, cs []*server.Command) {
	pipe := c.redis.Pipeline()
	cmds := make([]command, len(cs))
	for i, c := range cs {
		cmds[i] = newCommand(ctx, c)
		_ = pipe.Process(ctx, cmds[i]) // queues it
	}
	_, failed := pipe.Exec(ctx)
	for i, b := range cs {
		name := cmds[i].name
		b.Redirected = name.redirected
		b.Reply, b.Err = cmds[i].Result()
		switch {
		case name.open:
			// The command still has the error of its redirection, whatever happened afterwards.
			b.Err = errUnanswered
		case b.Err == nil && b.Reply == "": // a hook has not passed it on
			b.Err = failed
		case b.Err == nil:
			c.answered()
		}
		if redis.HasErrorPrefix(b.Err, "READONLY") {
			// after READONLY a single command reloads the cluster's state, a pipeline does not
			c.Lost(b.Err)
		}
	}
}

var errUnanswered = errors.New("redisstore: no answer after a redirection")

// SetErr is called by go-redis with the answer to a command, and with the error of a failed
// pipeline for its commands that have no error yet.
func (c command) SetErr(err error) {
	c.name.open = false
	if redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK") {
		c.name.redirected = true
	}
	c.StringCmd.SetErr(err)
}
