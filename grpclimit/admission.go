package grpclimit

import (
	"context"

	"google.golang.org/grpc/codes"

	"github.com/truewindow/ratelimit"
)

// An admission is a call that was admitted, and the context that its handler gets.
type admission struct {
	context.Context
	decision    Decision
	reservation *ratelimit.Reservation // or nil
	lease       *ratelimit.Lease       // or nil
	room        [2]ratelimit.Result    // of decision
}

// settle settles what the call has taken, now that it has ended with a code. The observers of the
// limiters see an error; nobody else could do anything about it.
func (a *admission) settle(counts func(codes.Code) bool, code codes.Code) {
	switch {
	case a == nil:
	case a.lease != nil:
		_ = a.lease.Release(a.Context)
	case a.reservation == nil, a.reservation.Result().Source == ratelimit.SourceOpen:
		// Nothing was recorded.
	default:
		keep := true
		defer func() { // also if counts panics
			if keep {
				_ = a.reservation.Commit(a.Context)
			} else {
				_ = a.reservation.Cancel(a.Context)
			}
		}()
		keep = counts == nil || counts(code)
	}
}

// contextOr returns the context of the handler: that of the call, ctx, if it was not limited.
func (a *admission) contextOr(ctx context.Context) context.Context {
	if a == nil {
		return ctx
	}
	return a
}

type decisionKey struct{}

// Value returns the decision, and else what the context of the call has.
func (a *admission) Value(key any) any {
	if key == (decisionKey{}) {
		return &a.decision
	}
	return a.Context.Value(key)
}
