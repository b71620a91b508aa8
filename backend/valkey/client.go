package valkeystore

import (
	"context"
	"errors"

	"github.com/valkey-io/valkey-go"

	"github.com/truewindow/ratelimit/backend/internal/server"
)

// piped is valkey-go as package server wants it.
type piped struct {
	client valkey.Client
}

var _ server.Piped = piped{}

func (p piped) Do(ctx context.Context, words, keys, args []string) (string, error) {
	cmd := p.client.B().Arbitrary(words...).Keys(keys...).Args(args...).Build()
	return p.client.Do(ctx, cmd).ToString()
}

func (p piped) Nodes() []server.Piped {
	var nodes []server.Piped
	for _, client := range p.client.Nodes() {
		nodes = append(nodes, piped{client})
	}
	return nodes
}

func (p piped) ErrorReply(err error) (string, bool) {
	var reply *valkey.ValkeyError
	if errors.As(err, &reply) && !reply.IsNil() {
		return reply.Error(), true
	}
	return "", false
}

// NotSent knows that no server has the slot, and that a new connection was refused the tracking of its cache.
func (p piped) NotSent(err error) bool {
	return errors.Is(err, valkey.ErrNoSlot) || errors.Is(err, valkey.ErrNoCache)
}

func (p piped) Cluster() bool { return p.client.Mode() == valkey.ClientModeCluster }
