package grpclimit

import (
	"context"

	"github.com/truewindow/ratelimit"
)

// A Choose returns the claims of a call: which limiters, for which keys, and how many units. They
// are admitted together or not at all, as by [ratelimit.AllowAll]. Without a claim the call is not
// limited. An error means that the call cannot be attributed.
//
// The method is the full one, such as "/grpc.health.v1.Health/Check". The request is that of a
// unary call, or the message that [WithMessages] limits; it is nil when a stream is opened. Many
// goroutines call a Choose at once.
//
// Each claim of a limiter of several limits counts under all of them.
type Choose func(ctx context.Context, method string, request any) ([]ratelimit.Claim, error)

// PerCall returns the Choose of one unit of limiter for each call, or for each message, with the
// key that a KeyFunc finds. It panics if limiter or key is nil.
func PerCall(limiter *ratelimit.Limiter, key KeyFunc) Choose {
	switch {
	case limiter == nil:
		panic("grpclimit: no limiter")
	case key == nil:
		panic("grpclimit: no key function")
	}
	return func(ctx context.Context, method string, _ any) ([]ratelimit.Claim, error) {
		k, err := key(ctx, method)
		if err != nil {
			return nil, err
		}
		return []ratelimit.Claim{{Limiter: limiter, Key: k, N: 1}}, nil
	}
}
