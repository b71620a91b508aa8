package redisstore

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit/backend/internal/server"
)

var _ server.Pipeliner = (*client)(nil)

// Owner asks nobody: once a command has been answered the client knows the cluster's state, and
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

// RunPipeline sends a pipeline to each server. Commands that are not to be sent again keep go-redis
// from repeating the pipeline; those that were redirected it sends to the other server, and the
// rest no more.
func (c *client) RunPipeline(ctx context.Context, cs []*server.Command) {
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
			// go-redis leaves a command the error with which it was redirected, whatever happens to
			// it then.
			b.Err = errUnanswered
		case b.Err == nil && b.Reply == "": // a hook has not passed it on
			b.Err = failed
		case b.Err == nil:
			c.answered()
		}
		if redis.HasErrorPrefix(b.Err, "READONLY") {
			// a pipeline does not ask for the cluster's state as a single command does
			c.Lost(b.Err)
		}
	}
}

var errUnanswered = errors.New("redisstore: no answer after a redirection")

// SetErr is how go-redis tells a command its answer, and the commands of a pipeline that has failed
// what failed, except those that have an error already.
func (c command) SetErr(err error) {
	c.name.open = false
	if redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK") {
		c.name.redirected = true
	}
	c.StringCmd.SetErr(err)
}
