package envoy

import (
	"context"
	"crypto/x509"
	"errors"
	"net/http"
	"strings"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/truewindow/ratelimit/cmd/ratelimit/access"
	"github.com/truewindow/ratelimit/cmd/ratelimit/audit"
	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
	"github.com/truewindow/ratelimit/cmd/ratelimit/kuadrant"
)

// A method is what a call needs, and what it is in the audit.
type method struct {
	needs  access.Rights
	action string
}

// methods are those that need a right.
var methods = map[string]method{
	rls.RateLimitService_ShouldRateLimit_FullMethodName:     {access.ToDecide, "decide"},
	kuadrant.RateLimitService_CheckRateLimit_FullMethodName: {access.ToDecide, "decide"},
	kuadrant.RateLimitService_Reserve_FullMethodName:        {access.ToDecide, "decide"},
	kuadrant.RateLimitService_Report_FullMethodName:         {access.ToSettle, "force"},
	kuadrant.RateLimitService_Commit_FullMethodName:         {access.ToSettle, "settle"},
}

// jsonKey is the key of the address of a client in JSON in a context.
type jsonKey struct{}

// admit returns the context of a call over gRPC, with its caller, or an error if it lacks a right.
// Calls that need none, as those of health, are admitted as they are.
func (s *Service) admit(ctx context.Context, path string) (context.Context, error) {
	m, ok := methods[path]
	if !ok || s.config.Access == nil {
		return ctx, nil
	}
	var certificate *x509.Certificate
	if p, ok := peer.FromContext(ctx); ok {
		if t, ok := p.AuthInfo.(credentials.TLSInfo); ok && len(t.State.VerifiedChains) > 0 {
			certificate = t.State.PeerCertificates[0]
		}
	}
	caller := s.config.Access.Find(tokenOf(ctx), certificate)
	if caller.Kind != access.ByNothing { // which a context without a caller has
		ctx = access.With(ctx, caller)
	}
	switch {
	case caller.May(m.needs):
		return ctx, nil
	case caller.Known():
		return nil, s.deny(ctx, codes.PermissionDenied, "the credential has not the right: "+
			m.needs.String())
	}
	return nil, s.deny(ctx, codes.Unauthenticated,
		"the call needs a certificate, or the metadata authorization: Bearer TOKEN")
}

// intercept answers calls that lack a right with an error.
func (s *Service) intercept(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler,
) (any, error) {
	ctx, err := s.admit(ctx, info.FullMethod)
	if err != nil {
		s.counts.calls.Add(1)
		return nil, err
	}
	return handle(ctx, req)
}

// tokenOf returns the token in the metadata of a call, or "".
func tokenOf(ctx context.Context) string {
	scheme, token, ok := strings.Cut(strings.Join(
		metadata.ValueFromIncomingContext(ctx, "authorization"), ","), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return token
}

// deny returns the error of a call that lacks a right, counts it, and notes what it wanted.
func (s *Service) deny(
	ctx context.Context, code codes.Code, why string, wanted ...audit.Change,
) error {
	s.counts.invalid.Add(1)
	s.config.Audit.Refuse(ctx, func() audit.Event {
		e := eventOf(ctx, "decide", wanted...)
		if m, ok := methods[e.Path]; ok {
			e.Action = m.action
		}
		e.Status, e.Error = int(code), why
		if e.Door == audit.API {
			e.Status = http.StatusForbidden
		}
		return e
	})
	return status.Error(code, why)
}

// eventOf returns an event of a call.
func eventOf(ctx context.Context, action string, changes ...audit.Change) audit.Event {
	e := audit.Event{Action: action, Changes: changes}
	if from, ok := ctx.Value(jsonKey{}).(string); ok {
		e.Door, e.Path, e.From = audit.API, "/json", from
		return e
	}
	e.Door = audit.GRPC
	e.Path, _ = grpc.Method(ctx)
	if p, ok := peer.FromContext(ctx); ok {
		e.From = p.Addr.String()
	}
	return e
}

// wrote notes that a call has charged units, or why it has failed to, with the code of its answer.
func (s *Service) wrote(
	ctx context.Context, action string, changes []audit.Change, code codes.Code, err error,
) {
	e := eventOf(ctx, action, changes...)
	e.Outcome, e.Status = audit.Done, int(code)
	if err != nil {
		e.Outcome, e.Error = audit.Failed, err.Error()
	}
	s.config.Audit.Note(ctx, e)
}

// notAllowed returns the error of a call to a limit that its caller may not use.
func (s *Service) notAllowed(ctx context.Context, err error) error {
	wrong := (*decision.RequestError)(nil)
	var wanted []audit.Change
	if errors.As(err, &wrong) {
		wanted = []audit.Change{{Limit: wrong.Limit.Name}}
	}
	return s.deny(ctx, codes.PermissionDenied,
		"the credential is limited to other limits than those of the call", wanted...)
}

// charged returns the changes of a call that charged its descriptors, which have parts.
func charged(req *rls.RateLimitRequest, parts []decision.Part) (changes []audit.Change) {
	for i, p := range parts {
		units := hits(req, req.GetDescriptors()[i])
		for _, s := range p.Statuses {
			c := audit.Change{Limit: s.Limit.Name, Key: s.Key, Units: &units}
			if s.Asked {
				c.After = audit.StateOf(s.Result)
			}
			changes = append(changes, c)
		}
	}
	return changes
}
