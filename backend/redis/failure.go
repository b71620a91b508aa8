package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/backend/internal/server"
)

// failure returns the error for a demand that the client could not get decided. sent tells that it may have been written to
// a connection.
func (s *Store) failure(err error, sent bool) error {
	cause := s.keys.Scrub(err)
	var reply redis.Error
	if errors.As(err, &reply) && !errors.Is(err, redis.Nil) {
		kind := ratelimit.ErrUnavailable // a connection that was refused, such as by NOAUTH
		if sent {
			kind = server.ReplyKind(reply.Error())
		}
		if errors.Is(kind, errors.ErrUnsupported) {
			return fmt.Errorf("redisstore: keys of several slots in one TakeAll: %w: %w", kind, cause)
		}
		return fmt.Errorf("%w: %w", kind, cause)
	}
	s.reload(err)
	if sent && !isUnsent(err) {
		return fmt.Errorf("%w: %w", ratelimit.ErrOutcomeUnknown, cause)
	}
	return fmt.Errorf("%w: %w", ratelimit.ErrUnavailable, cause)
}

// isUnsent tells that an attempt failed for want of a connection. There is an attempt before it only if a server answered
// that one with a redirect.
func isUnsent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" || errors.Is(err, redis.ErrPoolTimeout) ||
		errors.Is(err, redis.ErrPoolExhausted) || errors.Is(err, redis.ErrClosed)
}

const reloadInterval = 200 * time.Millisecond

// reload asks a cluster's client to learn anew who serves which slot, after an error that was not a server's answer. The client does
// not do so when a server stops answering, and would find the new primary only a minute later. It does not wait.
func (s *Store) reload(err error) {
	if s.cluster == nil || errors.Is(err, context.Canceled) {
		return
	}
	now := time.Since(s.started)
	next := s.nextReload.Load()
	if int64(now) >= next && s.nextReload.CompareAndSwap(next, int64(now+reloadInterval)) {
		s.cluster.ReloadState(context.Background())
	}
}
