package rueidisstore

import (
	"context"
	"errors"

	"github.com/redis/rueidis"

	"github.com/truewindow/ratelimit/backend/internal/pipelined"
)

// adapter makes a [pipelined.Client] of rueidis.
type adapter struct {
	client rueidis.Client
}

var _ pipelined.Client = adapter{}

func (a adapter) Do(ctx context.Context, words, keys, args []string) (string, error) {
	cmd := a.client.B().Arbitrary(words...).Keys(keys...).Args(args...).Build()
	return a.client.Do(ctx, cmd).ToString()
}

func (a adapter) DoTracked(ctx context.Context, words, keys, args []string) (string, error) {
	replies := a.client.DoMulti(ctx,
		a.client.B().Multi().Build(),
		a.client.B().ClientCaching().Yes().Build(),
		a.client.B().Arbitrary(words...).Keys(keys...).Args(args...).Build(),
		a.client.B().Exec().Build())
	results, err := replies[len(replies)-1].ToArray()
	if err != nil {
		return "", err
	}
	if len(results) != 2 {
		return "", errors.New("EXEC did not reply with two results")
	}
	if err := results[0].Error(); err != nil {
		return "", err
	}
	return results[1].ToString()
}

func (a adapter) Nodes() []pipelined.Client {
	var nodes []pipelined.Client
	for _, client := range a.client.Nodes() {
		nodes = append(nodes, adapter{client})
	}
	return nodes
}

func (a adapter) ErrorReply(err error) (string, bool) {
	var reply *rueidis.RedisError
	if errors.As(err, &reply) && !reply.IsNil() {
		return reply.Error(), true
	}
	return "", false
}

// NotSent recognizes the error for a slot without a server.
func (a adapter) NotSent(err error) bool { return errors.Is(err, rueidis.ErrNoSlot) }

func (a adapter) Untracked(err error) bool { return errors.Is(err, rueidis.ErrNoCache) }

func (a adapter) Cluster() bool { return a.client.Mode() == rueidis.ClientModeCluster }

func (a adapter) Close() { a.client.Close() }
