package grpclimit

import (
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/driver"
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
	if err != nil && (ctx.Err() != nil || a.call.Results == nil) {
		return e.undecided(ctx, claims, err)
	}
	a.decision = Decision{Claims: claims, Results: a.call.Results}
	if !a.call.Allowed() {
		return e.refused(e.refusalOf(&a.decision))
	}
	return nil
}

// admitMessage decides a message of a stream.
func (e *interceptor) admitMessage(ctx context.Context, method string, message any) error {
	claims, err := e.claims(ctx, e.messages, method, message)
	if err != nil || len(claims) == 0 {
		return err
	}
	return e.ask(ctx, new(admission), claims, edge.Options{Wait: e.wait, Unsettled: true})
}

// claims calls a Choose and checks the claims that it returns.
func (e *interceptor) claims(
	ctx context.Context, choose Choose, method string, request any,
) ([]ratelimit.Claim, error) {
	claims, err := choose(ctx, method, request)
	if err != nil {
		if ctx.Err() != nil {
			return nil, e.ended(ctx)
		}
		code := codes.InvalidArgument
		if s, ok := status.FromError(err); ok && s.Code() != codes.OK {
			code = s.Code()
		}
		return nil, e.unattributed(code)
	}
	for i := range claims {
		if claims[i].Limiter == nil {
			return nil, e.misconfigured()
		}
	}
	return claims, nil
}

// maxInFlightDelay is the longest RetryInfo of a limit of calls in flight, because most calls end
// before their window does.
const maxInFlightDelay = time.Second

// refusalOf returns why d was refused.
func (e *interceptor) refusalOf(d *Decision) (r refusal) {
	r.reduced = edge.Reduced(d.Claims, d.Results)
	for i := range d.Results {
		res := &d.Results[i]
		if res.Allowed {
			continue
		}
		a := d.algorithm(i)
		limit := a.Limit()
		most, description, delay := limit.Max, rate(limit.Max, limit.Window), res.RetryAfter
		switch {
		case e.blocks[limit.Name]:
			r.blocked, most, description = true, 0, "blocked"
		case edge.InFlight(a):
			description, delay = atOnce(limit.Max), min(delay, maxInFlightDelay)
		}
		r.violations = append(r.violations, violation(limit.Name, most, description))
		r.delay = max(r.delay, delay)
	}
	return r
}

// undecided returns the error of a call that was not decided because of err.
func (e *interceptor) undecided(ctx context.Context, claims []ratelimit.Claim, err error) error {
	switch {
	case errors.Is(err, edge.ErrNoKey):
		return e.unattributed(codes.InvalidArgument)
	case ctx.Err() != nil:
		return e.ended(ctx)
	case errors.Is(err, ratelimit.ErrUnavailable):
		return e.fail(codes.Unavailable,
			"the limits of the call cannot be checked at the moment",
			e.info(ReasonUndecided, nil))
	}
	var r refusal
	for i := range claims {
		needed := claims[i].N
		if claims[i].Least > 0 && needed <= driver.MaxUnits {
			needed = claims[i].Least
		}
		for _, limit := range claims[i].Limiter.Limits() {
			if needed > limit.Max || errors.Is(err, ratelimit.ErrQueueFull) {
				r.violations = append(r.violations,
					violation(limit.Name, limit.Max, rate(limit.Max, limit.Window)))
			}
		}
	}
	if len(r.violations) > 0 {
		return e.refused(r)
	}
	return e.misconfigured()
}

// ended returns the error of a call whose context has ended.
func (e *interceptor) ended(ctx context.Context) error {
	s := status.FromContextError(ctx.Err())
	return e.fail(s.Code(), s.Message())
}

func (e *interceptor) unattributed(code codes.Code) error {
	return e.fail(code, "cannot determine whose limits apply to the call")
}

func (e *interceptor) misconfigured() error {
	return e.fail(codes.Internal, "the limits of the call are misconfigured")
}
