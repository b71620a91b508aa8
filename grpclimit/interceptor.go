package grpclimit

import (
	"context"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/edge"
)

// side is the side of a connection that an interceptor is on.
type side bool

const (
	server side = false
	client side = true
)

// interceptor is what all interceptors share: it decides calls, and makes the errors of those that
// are not passed on.
type interceptor struct {
	options
	choose Choose
	side   side
}

func newInterceptor(side side, choose Choose, opts []Option) *interceptor {
	e := &interceptor{choose: choose, side: side}
	e.domain = DefaultDomain
	WithExempt(
		"grpc.health.v1.Health",
		"grpc.reflection.v1.ServerReflection",
		"grpc.reflection.v1alpha.ServerReflection",
	)(&e.options)
	for _, opt := range opts {
		opt(&e.options)
	}
	switch {
	case choose == nil:
		panic("grpclimit: the Choose function is nil")
	case side == client && e.pushback:
		panic("grpclimit: WithPushback is for servers")
	case !edge.ValidJitter(e.jitter):
		panic("grpclimit: the share of WithRetryJitter is not between 0 and 1")
	case side == server && e.wait:
		panic("grpclimit: WithWait is for clients")
	}
	return e
}

// exempts reports whether a method is not limited.
func (e *interceptor) exempts(method string) bool {
	method = strings.TrimPrefix(method, "/")
	end := strings.LastIndexByte(method, '/')
	return end >= 0 && e.exempt[method[:end]]
}

// admit decides a call, or the opening of a stream. If it returns no error, the call is admitted.
// Then the admission, which is nil for a call without claims, has to be settled when the call ends.
func (e *interceptor) admit(ctx context.Context, method string, request any) (*admission, error) {
	claims, err := e.claims(ctx, e.choose, method, request)
	if err != nil || len(claims) == 0 {
		return nil, err
	}
	return e.decide(ctx, claims)
}

// decide is admit for a call with claims.
func (e *interceptor) decide(
	ctx context.Context, claims []ratelimit.Claim,
) (a *admission, err error) {
	a = &admission{Context: ctx}
	return a, e.ask(ctx, a, claims, edge.Options{Wait: e.wait, Settle: e.counts != nil})
}

// ask decides claims and sets the decision of a.
func (e *interceptor) ask(
	ctx context.Context, a *admission, claims []ratelimit.Claim, opts edge.Options,
) error {
	err := a.call.Decide(ctx, claims, opts)
	if err == nil && a.call.Allowed() {
		a.decision = Decision{Claims: claims, Results: a.call.Results}
		return nil
	}
	r := a.call.Refusal(ctx, claims, err, e.blocks)
	if r.Reason == edge.Ended {
		return e.ended(ctx)
	}
	return e.refused(r, err)
}

// admitMessage decides a message of a stream.
func (e *interceptor) admitMessage(ctx context.Context, method string, message any) error {
	claims, err := e.claims(ctx, e.messages, method, message)
	if err != nil || len(claims) == 0 {
		return err
	}
	return e.ask(ctx, new(admission), claims, edge.Options{Wait: e.wait, Unsettled: true})
}

// claims calls a Choose.
func (e *interceptor) claims(
	ctx context.Context, choose Choose, method string, request any,
) ([]ratelimit.Claim, error) {
	claims, err := choose(ctx, method, request)
	if err != nil {
		if ctx.Err() != nil {
			return nil, e.ended(ctx)
		}
		unattributed := edge.Refusal{Reason: edge.Unattributed}
		if s, ok := status.FromError(err); ok && s.Code() != codes.OK {
			return nil, e.fail(s.Code(), unattributed.Status(0).Message, err)
		}
		return nil, e.refused(unattributed, err)
	}
	return claims, nil
}

// ended returns the error of a call whose context has ended.
func (e *interceptor) ended(ctx context.Context) error {
	s := status.FromContextError(ctx.Err())
	return e.fail(s.Code(), s.Message(), ctx.Err())
}
