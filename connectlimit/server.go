package connectlimit

import (
	"context"

	"connectrpc.com/connect/v2"
)

// ServerInterceptor returns an interceptor that limits the calls of a server: unary ones, and the
// opening of streams. It decides before a message is read, unless an option says otherwise. It
// panics if choose is nil or an option is only for clients.
//
// Put it behind the interceptor that authenticates callers, and before those that read messages.
func ServerInterceptor(choose Choose, opts ...Option) connect.ServerInterceptor {
	e := newInterceptor(server, choose, opts)
	return func(next connect.ServerFunc) connect.ServerFunc {
		return func(ctx context.Context, spec connect.Spec, stream connect.ServerStream) error {
			if e.exempts(spec.Procedure) {
				return next(ctx, spec, stream)
			}
			return e.serve(ctx, spec, stream, next)
		}
	}
}

// A serverCall is a call of a server: the context of its handler and, if its messages are decided,
// its stream.
type serverCall struct {
	admission
	connect.ServerStream
	shared    *interceptor
	spec      connect.Spec
	undecided bool  // until the request is received
	refused   error // by its request or a message
}

func (e *interceptor) serve(
	ctx context.Context, spec connect.Spec, stream connect.ServerStream, next connect.ServerFunc,
) (err error) {
	c := &serverCall{ServerStream: stream, shared: e, spec: spec, undecided: e.byRequest(spec)}
	c.Context = ctx
	if c.undecided || e.byMessages(spec) {
		stream = c
	}
	if !c.undecided {
		if err := e.admit(ctx, &c.admission, spec, nil); err != nil {
			return err
		}
	}
	code := connect.CodeInternal // unless next returns
	defer func() { c.settle(e.counts, code) }()
	err = next(c, spec, stream)
	if c.refused != nil {
		err = c.refused
	}
	code = codeOf(err)
	return err
}

// Receive decides the message that it receives, as the options say.
func (c *serverCall) Receive(message any) error {
	if c.refused != nil {
		return c.refused
	}
	if err := c.ServerStream.Receive(message); err != nil {
		return err
	}
	switch {
	case c.undecided:
		c.undecided = false
		c.refused = c.shared.admit(c.Context, &c.admission, c.spec, message)
	case c.shared.byMessages(c.spec):
		c.refused = c.shared.admitMessage(c.Context, c.spec, message)
	}
	return c.refused
}
