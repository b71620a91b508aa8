package grpclimit

import (
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/truewindow/ratelimit"
)

// side is the side of a connection that an edge is on.
type side bool

const (
	server side = false
	client side = true
)

// edge is what all interceptors share: it decides calls, and makes the errors of those that are not
// passed on.
type edge struct {
	options
	choose Choose
	side   side
}

func newEdge(side side, choose Choose, opts []Option) *edge {
	e := &edge{choose: choose, side: side}
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
func (e *edge) exempts(method string) bool {
	method = strings.TrimPrefix(method, "/")
	end := strings.LastIndexByte(method, '/')
	return end >= 0 && e.exempt[method[:end]]
}

// admit decides a call, or the opening of a stream. If it returns no error, the call is admitted.
// Then the admission, which is nil for a call without claims, has to be settled when the call ends.
func (e *edge) admit(ctx context.Context, method string, request any) (*admission, error) {
	claims, err := e.claims(ctx, e.choose, method, request)
	if err != nil || len(claims) == 0 {
		return nil, err
	}
	return e.decide(ctx, claims)
}

// decide is admit for a call with claims.
func (e *edge) decide(ctx context.Context, claims []ratelimit.Claim) (a *admission, err error) {
	a = &admission{Context: ctx, decision: Decision{Claims: claims}}
	if e.counts == nil && !hold(claims) {
		err = e.take(ctx, a)
	} else {
		err = e.reserve(ctx, a)
	}
	if err != nil {
		return nil, e.undecided(ctx, claims, err)
	}
	if !a.decision.allowed() {
		return nil, e.refused(e.refusalOf(&a.decision))
	}
	return a, nil
}

// admitMessage decides a message of a stream.
func (e *edge) admitMessage(ctx context.Context, method string, message any) error {
	claims, err := e.claims(ctx, e.messages, method, message)
	switch {
	case err != nil:
		return err
	case len(claims) == 0:
		return nil
	case hold(claims):
		return e.misconfigured()
	}
	a := &admission{decision: Decision{Claims: claims}}
	if err := e.take(ctx, a); err != nil {
		return e.undecided(ctx, claims, err)
	}
	if !a.decision.allowed() {
		return e.refused(e.refusalOf(&a.decision))
	}
	return nil
}

// claims calls a Choose and checks the claims that it returns.
func (e *edge) claims(
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
		switch {
		case claims[i].Limiter == nil:
			return nil, e.misconfigured()
		case claims[i].Key == "":
			return nil, e.unattributed(codes.InvalidArgument)
		}
	}
	return claims, nil
}

// take takes the units of claims that need no settlement.
func (e *edge) take(ctx context.Context, a *admission) (err error) {
	claims, d := a.decision.Claims, &a.decision
	switch {
	case len(claims) > 1 && e.wait:
		return e.waitAll(ctx, d, func() (err error) {
			d.Results, err = ratelimit.AllowAllEach(ctx, a.room[:0], claims...)
			return err
		})
	case len(claims) > 1:
		d.Results, err = ratelimit.AllowAllEach(ctx, a.room[:0], claims...)
	case e.wait:
		d.Results, err = waitOne(ctx, claims[0], a.room[:0])
	default:
		c := &claims[0]
		d.Results, err = c.Limiter.AllowEach(ctx, c.Key, c.N, a.room[:0])
	}
	return err
}

// reserve takes the units of claims that are settled when the call ends.
func (e *edge) reserve(ctx context.Context, a *admission) (err error) {
	claims, d := a.decision.Claims, &a.decision
	once := func() (err error) {
		if a.reservation, err = ratelimit.ReserveAll(ctx, claims...); err != nil {
			return err
		}
		d.Results = a.reservation.ResultsEach()
		return nil
	}
	switch {
	case e.wait && len(claims) == 1 && claims[0].N == 1 && claims[0].Limiter.InFlight():
		if a.lease, err = claims[0].Limiter.Acquire(ctx, claims[0].Key); err != nil {
			return err
		}
		d.Results = append(a.room[:0], a.lease.Result()) // only that of the limit that binds
		return nil
	case e.wait:
		return e.waitAll(ctx, d, once)
	}
	return once()
}

// hold reports whether one of the claims is of calls in flight, so that it is held until the call
// ends.
func hold(claims []ratelimit.Claim) bool {
	for i := range claims {
		if claims[i].Limiter.InFlight() {
			return true
		}
	}
	return false
}

// maxInFlightDelay is the longest RetryInfo of a limit of calls in flight, because most calls end
// before their window does.
const maxInFlightDelay = time.Second

// refusalOf returns why d was refused.
func (e *edge) refusalOf(d *Decision) (r refusal) {
	r.reduced = true
	for i := range d.Results {
		res := &d.Results[i]
		if res.Allowed {
			continue
		}
		limiter, limit := d.limit(i)
		r.reduced = r.reduced && res.Source == ratelimit.SourceLocal && res.Limit.Max < limit.Max
		most, description, delay := limit.Max, rate(limit.Max, limit.Window), res.RetryAfter
		switch {
		case e.blocks[limit.Name]:
			r.blocked, most, description = true, 0, "blocked"
		case limiter.InFlight():
			description, delay = atOnce(limit.Max), min(delay, maxInFlightDelay)
		}
		r.violations = append(r.violations, violation(limit.Name, most, description))
		r.delay = max(r.delay, delay)
	}
	return r
}

// undecided returns the error of a call that was not decided because of err.
func (e *edge) undecided(ctx context.Context, claims []ratelimit.Claim, err error) error {
	switch {
	case ctx.Err() != nil:
		return e.ended(ctx)
	case errors.Is(err, ratelimit.ErrUnavailable):
		return e.fail(codes.Unavailable,
			"the limits of the call cannot be checked at the moment",
			e.info(ReasonUndecided, nil))
	case errors.Is(err, context.DeadlineExceeded): // while the call waits for its turn
		return e.fail(codes.DeadlineExceeded, context.DeadlineExceeded.Error())
	}
	var r refusal
	for i := range claims {
		for _, limit := range claims[i].Limiter.Limits() {
			if claims[i].N > limit.Max || errors.Is(err, ratelimit.ErrQueueFull) {
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
func (e *edge) ended(ctx context.Context) error {
	s := status.FromContextError(ctx.Err())
	return e.fail(s.Code(), s.Message())
}

func (e *edge) unattributed(code codes.Code) error {
	return e.fail(code, "cannot determine whose limits apply to the call")
}

func (e *edge) misconfigured() error {
	return e.fail(codes.Internal, "the limits of the call are misconfigured")
}
