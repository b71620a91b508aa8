package connectlimit

import (
	"context"
	"errors"
	"strings"

	"connectrpc.com/connect/v2"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/edge"
)

// side is the side of a connection that an interceptor is on.
type side bool

const (
	server side = false
	client side = true
)

// interceptor is what both sides share: it decides calls, and makes the errors of those that are
// not passed on.
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
		panic("connectlimit: the Choose function is nil")
	case !edge.ValidJitter(e.jitter):
		panic("connectlimit: the share of WithRetryJitter is not between 0 and 1")
	case side == server && e.wait:
		panic("connectlimit: WithWait is for clients")
	}
	return e
}

// exempts reports whether a procedure is not limited.
func (e *interceptor) exempts(procedure string) bool {
	procedure = strings.TrimPrefix(procedure, "/")
	end := strings.LastIndexByte(procedure, '/')
	return end >= 0 && e.exempt[procedure[:end]]
}

// byRequest reports whether calls of this kind are decided by the content of their request.
func (e *interceptor) byRequest(spec connect.Spec) bool {
	return e.request && spec.StreamType&connect.StreamTypeClient == 0
}

// byMessages reports whether the messages of streams of this kind are decided.
func (e *interceptor) byMessages(spec connect.Spec) bool {
	return e.messages != nil && spec.StreamType != connect.StreamTypeUnary
}

// admit decides a call, or the opening of a stream, and sets the decision of a. If it returns no
// error, the call is admitted, or it has no claims. Then a has to be settled when the call ends.
func (e *interceptor) admit(
	ctx context.Context, a *admission, spec connect.Spec, message any,
) error {
	return e.ask(ctx, a, spec, e.choose, message,
		edge.Options{Wait: e.wait, Settle: e.counts != nil})
}

// admitMessage decides a message of a stream.
func (e *interceptor) admitMessage(ctx context.Context, spec connect.Spec, message any) error {
	return e.ask(ctx, new(admission), spec, e.messages, message,
		edge.Options{Wait: e.wait, Unsettled: true})
}

func (e *interceptor) ask(
	ctx context.Context, a *admission, spec connect.Spec, choose Choose, message any,
	opts edge.Options,
) error {
	claims, err := e.claims(ctx, choose, spec.Procedure, message)
	if err != nil || len(claims) == 0 {
		return err
	}
	err = a.call.Decide(ctx, claims, opts)
	if err == nil && a.call.Allowed() {
		a.decision = Decision{Claims: claims, Results: a.call.Results}
		return nil
	}
	r := a.call.Refusal(ctx, claims, err, e.blocks)
	if r.Reason == edge.Ended {
		return e.ended(ctx)
	}
	if e.side == server {
		e.describe(ctx, spec, r, claims, a.call.Results)
	}
	return e.refused(r, err)
}

// claims calls a Choose.
func (e *interceptor) claims(
	ctx context.Context, choose Choose, procedure string, message any,
) ([]ratelimit.Claim, error) {
	claims, err := choose(ctx, procedure, message)
	if err != nil {
		if ctx.Err() != nil {
			return nil, e.ended(ctx)
		}
		unattributed := edge.Refusal{Reason: edge.Unattributed}
		var coded *connect.Error
		if errors.As(err, &coded) {
			return nil, e.fail(coded.Code(), unattributed.Status(0).Message, err)
		}
		return nil, e.refused(unattributed, err)
	}
	return claims, nil
}
