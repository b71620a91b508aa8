package grpclimit

import (
	"context"

	"google.golang.org/grpc"
)

// An Adapter is a limiter for interceptors of other packages that call a method Limit(ctx
// context.Context) error, such as those of go-grpc-middleware. It is safe for concurrent use.
// Create one with [NewAdapter].
//
// Such an interceptor decides what the client gets. That of go-grpc-middleware turns every error
// into RESOURCE_EXHAUSTED with the text of the error. So the client gets neither details nor
// trailers, and cannot distinguish a refusal from an undecided call.
type Adapter struct{ shared *interceptor }

// NewAdapter returns an adapter for the interceptors of a server. It takes the method for choose
// from the server's context; the request is nil. Do not return claims of calls in flight: the
// adapter does not see when a call ends, so [Adapter.Limit] returns INTERNAL for them. NewAdapter
// panics if choose is nil or an option is not [WithBlocks], [WithDomain], [WithExempt] or
// [WithRetryJitter].
func NewAdapter(choose Choose, opts ...Option) *Adapter {
	e := newInterceptor(server, choose, opts)
	if e.pushback || e.counts != nil || e.messages != nil {
		panic("grpclimit: an adapter takes only WithBlocks, WithDomain, WithExempt and " +
			"WithRetryJitter")
	}
	e.messages = choose
	return &Adapter{e}
}

// Limit returns nil if the call is admitted or exempt. Otherwise it returns the status that the
// interceptors of this package would return.
func (a *Adapter) Limit(ctx context.Context) error {
	method, _ := grpc.Method(ctx)
	if a.shared.exempts(method) {
		return nil
	}
	return a.shared.admitMessage(ctx, method, nil)
}
