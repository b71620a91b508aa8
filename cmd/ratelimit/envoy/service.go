// Package envoy serves Envoy's rate limit protocol, envoy.service.ratelimit.v3, over gRPC, and as
// JSON over HTTP as envoyproxy/ratelimit does, and Kuadrant's, kuadrant.service.ratelimit.v1, over
// gRPC as limitador does.
//
// A descriptor of a call is a descriptor of package rules: its entries are matched by the files of
// package envoyfile, and by all other limits, which see the domain as an entry named domain. What
// differs from envoyproxy/ratelimit:
//
//   - Limits are exact, and their windows roll.
//   - A call that is refused charges no descriptor, unless [Config].Charge says so.
//   - A descriptor with hits_addend 0 is refused if no unit is free; see [Config].Reached.
//   - The units of descriptors with one history are added, and decided as one number.
//   - A descriptor with is_negative_hits is admitted, and gives nothing back: a rolling window has
//     no record of what an earlier call took.
//   - An override applies to the history of the limit that matches, as do its shadow_mode and
//     quota_mode.
//   - A descriptor with quota_mode that refuses is not charged, unless it has a hits_addend of its
//     own, as the charges have that Envoy makes when a stream ends. Those are recorded always. How
//     several of them are decided: package decision.
//   - duration_until_reset of a refusal is when the same call is admitted, if nothing else is. It
//     is missing if that is never.
//   - A status has unit_multiplier if the window of a limit is not one unit.
//   - Entries a = b_c and a_b = c have histories of their own.
//   - An empty domain or list of descriptors is InvalidArgument, not Unknown.
//   - A message that is compressed, or longer than 4 MiB, is an error, as are more than 100
//     descriptors, or entries of one.
package envoy

import (
	"context"
	"errors"
	"log/slog"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/cmd/ratelimit/access"
	"github.com/truewindow/ratelimit/cmd/ratelimit/audit"
	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
	"github.com/truewindow/ratelimit/cmd/ratelimit/envoyfile"
	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/lograte"
)

// A Decider decides the descriptors of a call. [decision.Decider] is one.
type Decider interface {
	Decide(context.Context, []decision.Request, decision.Options) (decision.Decision, error)
	Resume(id string, extend ...decision.Request) (*ratelimit.Reservation, error)
	Within(context.Context, string, *ratelimit.Reservation, ...ratelimit.Claim) (bool, error)
}

// Config is what a [Service] needs.
type Config struct {
	Decider Decider // required
	// Domains returns the files of envoyproxy/ratelimit that are in force, or nil. If it is nil,
	// there are none.
	Domains func() *envoyfile.Domains
	Log     *slog.Logger // nil: none

	Charge   Charge            // of calls of Envoy
	ChargeOf map[string]Charge // the same by domain, in place of Charge
	// Reached admits hits_addend 0 until more units were taken than the limit admits, as
	// envoyproxy/ratelimit does.
	Reached bool
	// Access has the tokens of the metadata authorization: Bearer TOKEN, and the certificates, of
	// calls over gRPC. If it is nil, everyone may call.
	Access *access.Table
	// SettleWithin lets only those of Access who may write charge more than was held by Kuadrant's
	// Report and Commit.
	SettleWithin bool
	Audit        *audit.Trail // notes Report and Commit; nil: none
	// Shadow admits every call. Its statuses are what they are without it.
	Shadow bool

	ResponseHeaders *Headers // nil: none are added to the response of a limited request
	RequestHeaders  *Headers // nil: none are added to the request itself
	// DynamicMetadata adds the call, and the metadata of the limits that admitted it, to the
	// answer.
	DynamicMetadata bool
}

// Service is Envoy's RateLimitService. Create one with [New]. It is safe for concurrent use.
type Service struct {
	rls.UnimplementedRateLimitServiceServer
	config Config
	counts counts
	failed lograte.Limit
	wrong  lograte.Limit
	looked warned
}

var _ rls.RateLimitServiceServer = (*Service)(nil)

// New returns a service. [NewServer] serves it.
func New(c Config) (*Service, error) {
	if c.Decider == nil {
		return nil, errors.New("envoy: no Decider")
	}
	for _, h := range []*Headers{c.ResponseHeaders, c.RequestHeaders} {
		if err := h.check(); err != nil {
			return nil, err
		}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Service{config: c}, nil
}

func (s *Service) domains() *envoyfile.Domains {
	if s.config.Domains == nil {
		return nil
	}
	return s.config.Domains()
}

// ShouldRateLimit decides a call. Its errors are gRPC statuses without values of the call, for
// which Envoy admits or denies as its failure_mode_deny says.
func (s *Service) ShouldRateLimit(
	ctx context.Context, req *rls.RateLimitRequest,
) (*rls.RateLimitResponse, error) {
	s.counts.calls.Add(1)
	d, err := s.decide(ctx, req, s.options(req.GetDomain()))
	if err != nil {
		return nil, err
	}
	return s.answer(req, d.Parts, d.Allowed), nil
}

// decide decides a call. The decision has a part for each descriptor.
func (s *Service) decide(
	ctx context.Context, req *rls.RateLimitRequest, opts decision.Options,
) (decision.Decision, error) {
	d := decision.Decision{Allowed: true}
	domains := s.domains()
	c, err := translate(req, domains)
	if err != nil {
		return d, s.invalid(req.GetDomain(), err)
	}
	s.counts.negative.Add(int64(c.negative))
	opts.MayUse = access.From(ctx).Only()
	if len(c.requests) > 0 {
		d, err = s.config.Decider.Decide(ctx, c.requests, opts)
		switch {
		case errors.Is(err, decision.ErrNotAllowed):
			return d, s.notAllowed(ctx, err)
		case err != nil:
			return d, s.fail(ctx, req.GetDomain(), err)
		}
	}
	if !hasLimit(d) && (domains == nil || !domains.Has(req.GetDomain())) {
		s.counts.unknown.Add(1)
	}
	if !opts.Peek && !opts.Force && opts.Hold == nil {
		s.warnOfLook(req.GetDomain(), c, d)
	}
	d.Parts = c.parts(d)
	return d, nil
}

func hasLimit(d decision.Decision) bool {
	for _, p := range d.Parts {
		if len(p.Statuses) > 0 {
			return true
		}
	}
	return false
}

// answer writes the response to a call, whose descriptors have parts.
func (s *Service) answer(
	req *rls.RateLimitRequest, parts []decision.Part, allowed bool,
) *rls.RateLimitResponse {
	resp := &rls.RateLimitResponse{
		OverallCode: s.code(allowed),
		Statuses:    make([]*rls.RateLimitResponse_DescriptorStatus, len(parts)),
	}
	shown := make([]view, len(parts))
	for i, p := range parts {
		shown[i] = viewOf(p)
		resp.Statuses[i] = shown[i].status()
	}
	nearest := nearest(shown)
	resp.ResponseHeadersToAdd = s.config.ResponseHeaders.of(nearest)
	resp.RequestHeadersToAdd = s.config.RequestHeaders.of(nearest)
	if s.config.DynamicMetadata {
		resp.DynamicMetadata = dynamicMetadata(req, parts, shown, nearest, allowed)
	}
	return resp
}

// code returns the code of a call, and counts it.
func (s *Service) code(allowed bool) rls.RateLimitResponse_Code {
	switch {
	case allowed:
		s.counts.ok.Add(1)
	case s.config.Shadow:
		s.counts.shadow.Add(1)
	default:
		s.counts.over.Add(1)
		return rls.RateLimitResponse_OVER_LIMIT
	}
	return rls.RateLimitResponse_OK
}
