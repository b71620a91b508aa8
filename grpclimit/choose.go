package grpclimit

import (
	"context"

	"github.com/truewindow/ratelimit"
)

// A Choose returns the claims of a call: which limiters, for which keys, and how many units. They
// are admitted together or not at all, as by [ratelimit.AllowAll]. A call without claims is not
// limited. An error, or a claim with an empty key, means that the call cannot be attributed; the
// client does not get the text of the error.
//
// The method is the full one, such as "/grpc.health.v1.Health/Check". The request is that of a
// unary call, or the message that [WithMessages] limits; it is nil when a stream is opened. A
// Choose must be safe for concurrent use.
type Choose func(ctx context.Context, method string, request any) ([]ratelimit.Claim, error)

// PerCall returns a Choose that takes one unit of limiter for each call or, with [WithMessages],
// for each message. It panics if limiter or key is nil.
func PerCall(limiter *ratelimit.Limiter, key KeyFunc) Choose {
	switch {
	case limiter == nil:
		panic("grpclimit: the limiter is nil")
	case key == nil:
		panic("grpclimit: the key function is nil")
	}
	return func(ctx context.Context, method string, _ any) ([]ratelimit.Claim, error) {
		k, err := key(ctx, method)
		if err != nil {
			return nil, err
		}
		return []ratelimit.Claim{{Limiter: limiter, Key: k, N: 1}}, nil
	}
}
