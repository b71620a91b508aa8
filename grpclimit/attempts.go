package grpclimit

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/edge"
)

// attempts are the attempts of a client's call. They are credentials of the call, because gRPC asks
// for these before each attempt, and does not make the attempt if it gets an error.
type attempts struct {
	credentials.PerRPCCredentials // what the caller passed, or nil
	shared                        *interceptor
	claims                        []ratelimit.Claim // of each attempt after the first

	mu       sync.Mutex
	begun    bool         // the first attempt
	admitted []*admission // settled when the call ends
	ended    bool
	code     codes.Code // with which the call ended
}

// attemptsOf returns the attempts of a call whose first attempt is admitted, and the options with
// which to make it.
func (e *interceptor) attemptsOf(
	first *admission, opts []grpc.CallOption,
) (*attempts, []grpc.CallOption) {
	t := &attempts{shared: e}
	if first == nil {
		return t, opts
	}
	t.admitted = []*admission{first}
	for _, c := range first.decision.Claims {
		if !edge.InFlight(c.Limiter.Algorithms()...) { // such a unit is held for all attempts
			t.claims = append(t.claims, c)
		}
	}
	if len(t.claims) == 0 {
		return t, opts
	}
	for _, opt := range opts {
		if o, ok := opt.(grpc.PerRPCCredsCallOption); ok {
			t.PerRPCCredentials = o.Creds // the last option applies
		}
	}
	return t, append(opts[:len(opts):len(opts)], grpc.PerRPCCredentials(t))
}

// GetRequestMetadata admits an attempt and returns the metadata of the call's credentials.
func (t *attempts) GetRequestMetadata(
	ctx context.Context, uri ...string,
) (map[string]string, error) {
	if err := t.admit(ctx); err != nil || t.PerRPCCredentials == nil {
		return nil, err
	}
	return t.PerRPCCredentials.GetRequestMetadata(ctx, uri...)
}

// RequireTransportSecurity reports whether the call's credentials do.
func (t *attempts) RequireTransportSecurity() bool {
	return t.PerRPCCredentials != nil && t.PerRPCCredentials.RequireTransportSecurity()
}

// admit decides an attempt. The first was admitted before the call began.
func (t *attempts) admit(ctx context.Context) error {
	t.mu.Lock()
	first := !t.begun
	t.begun = true
	t.mu.Unlock()
	if first {
		return nil
	}
	a, err := t.shared.decide(ctx, t.claims)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		a.settle(t.shared.counts, t.code)
	} else {
		t.admitted = append(t.admitted, a)
	}
	return nil
}

// settle settles the units of all attempts of a call that has ended with code. Later calls do
// nothing.
func (t *attempts) settle(code codes.Code) {
	t.mu.Lock()
	admitted := t.admitted
	t.admitted, t.ended, t.code = nil, true, code
	t.mu.Unlock()
	for _, a := range admitted {
		a.settle(t.shared.counts, code)
	}
}
