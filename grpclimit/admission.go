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

// settle settles the units of a call that has ended with code. It ignores errors: the observers of
// the limiters get them.
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

// contextOr returns the context for the handler: a, or ctx if the call was not limited.
func (a *admission) contextOr(ctx context.Context) context.Context {
	if a == nil {
		return ctx
	}
	return a
}

type decisionKey struct{}

// Value adds the decision to the values of the call's context.
func (a *admission) Value(key any) any {
	if key == (decisionKey{}) {
		return &a.decision
	}
	return a.Context.Value(key)
}
