package grpclimit

import (
	"context"

	"google.golang.org/grpc/codes"

	"github.com/truewindow/ratelimit/edge"
)

// An admission is a call that was admitted, and the context that its handler gets.
type admission struct {
	context.Context
	decision Decision
	call     edge.Call
}

// settle settles the units of a call that has ended with code.
func (a *admission) settle(counts func(codes.Code) bool, code codes.Code) {
	if a == nil || !a.call.Settles() {
		return
	}
	keep := true
	defer func() { a.call.Settle(a.Context, keep) }() // also if counts panics
	keep = counts == nil || counts(code)
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
