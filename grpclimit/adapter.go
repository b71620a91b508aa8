package grpclimit

import (
	"context"

	"google.golang.org/grpc"
)

// An Adapter is a limiter for interceptors of others, such as those of go-grpc-middleware, that
// take an interface with the method Limit(ctx context.Context) error. Create one with [NewAdapter].
//
// These interceptors make the answer to the client. Those of go-grpc-middleware answer every error
// with RESOURCE_EXHAUSTED and its text: details, trailers and the difference between a refusal and
// an undecided call are lost.
type Adapter struct{ edge *edge }

// NewAdapter returns an adapter for the interceptors of a server. The method that choose gets is
// that of the server's context, and the request is nil. Claims of calls in flight are a mistake
// here: nobody says when the call ends. NewAdapter panics if choose is nil or an option is not
// [WithBlocks], [WithDomain] or [WithExempt].
func NewAdapter(choose Choose, opts ...Option) *Adapter {
	e := newEdge(server, choose, opts)
	if e.pushback || e.counts != nil || e.messages != nil {
		panic("grpclimit: an adapter has only the options WithBlocks, WithDomain and WithExempt")
	}
	e.messages = choose
	return &Adapter{e}
}

// Limit returns nil if the call is admitted, or else the status that the interceptors of this
// package would return.
func (a *Adapter) Limit(ctx context.Context) error {
	method, _ := grpc.Method(ctx)
	if a.edge.exempts(method) {
		return nil
	}
	return a.edge.admitMessage(ctx, method, nil)
}
