package connectlimit

import (
	"context"

	"github.com/truewindow/ratelimit"
)

// A Choose returns the claims of a call: which limiters, for which keys, and how many units. They
// are admitted together or not at all, as by [ratelimit.AllowAll]. A call without claims is not
// limited. An error, or a claim with an empty key, means that the call cannot be attributed; the
// client does not get the text of the error, but the code of a [connect.Error].
//
// The procedure is such as "/acme.v1.Greeter/Hello". The message is nil, except that it is the one
// to decide with [WithRequest] and [WithMessages]. On a server [connect.CallInfoForServerContext]
// has the headers. A Choose must be safe for concurrent use.
type Choose func(ctx context.Context, procedure string, message any) ([]ratelimit.Claim, error)

// PerCall returns a Choose that takes one unit of limiter for each call or, with [WithMessages],
// for each message. It panics if limiter or key is nil.
func PerCall(limiter *ratelimit.Limiter, key KeyFunc) Choose {
	switch {
	case limiter == nil:
		panic("connectlimit: the limiter is nil")
	case key == nil:
		panic("connectlimit: the key function is nil")
	}
	return func(ctx context.Context, procedure string, _ any) ([]ratelimit.Claim, error) {
		k, err := key(ctx, procedure)
		if err != nil {
			return nil, err
		}
		return []ratelimit.Claim{{Limiter: limiter, Key: k, N: 1}}, nil
	}
}
