package connectlimit

import (
	"context"
	"errors"
	"io"
	"sync"

	"connectrpc.com/connect/v2"
)

// ClientInterceptor returns an interceptor that limits the calls of a client: unary ones, and the
// opening of streams. It panics if choose is nil.
//
// A call that is not admitted is not sent, and fails with the error of a refused call; see
// [IsLocal]. Units of calls in flight are released, and [WithCounting] decides, when the call ends:
// when Receive returns an error, which may be io.EOF, when Send returns an error other than io.EOF,
// when the stream is closed, or when the context ends.
func ClientInterceptor(choose Choose, opts ...Option) connect.ClientInterceptor {
	e := newInterceptor(client, choose, opts)
	return func(next connect.ClientFunc) connect.ClientFunc {
		return func(ctx context.Context, spec connect.Spec) (connect.ClientStream, error) {
			if e.exempts(spec.Procedure) {
				return next(ctx, spec)
			}
			return e.open(ctx, spec, next)
		}
	}
}

// A clientCall is the stream of a call of a client.
type clientCall struct {
	connect.ClientStream
	shared *interceptor
	ctx    context.Context
	spec   connect.Spec

	mu        sync.Mutex
	admission admission
	undecided bool // until the request is sent
	ended     bool
	code      connect.Code
	refused   error       // by its request or a message
	stop      func() bool // ends the watch of the context
}

// open opens a call that is admitted, or that its request decides.
func (e *interceptor) open(
	ctx context.Context, spec connect.Spec, next connect.ClientFunc,
) (connect.ClientStream, error) {
	c := &clientCall{shared: e, ctx: ctx, spec: spec, undecided: e.byRequest(spec)}
	c.admission.Context = ctx
	if !c.undecided {
		if err := e.admit(ctx, &c.admission, spec, nil); err != nil {
			return nil, err
		}
		if !c.admission.call.Settles() && !e.byMessages(spec) {
			return next(ctx, spec)
		}
	}
	opened := false
	defer func() {
		if !opened { // also if next panics
			c.end(connect.CodeInternal)
		}
	}()
	stream, err := next(ctx, spec)
	if err != nil {
		c.end(codeOf(err))
		return nil, err
	}
	opened = true
	c.ClientStream = stream
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stop = context.AfterFunc(ctx, func() { c.end(codeOf(ctx.Err())) })
	return c, nil
}

// Send decides the message, as the options say, and sends it.
func (c *clientCall) Send(message any) error {
	if err := c.admit(message); err != nil {
		return err
	}
	err := c.ClientStream.Send(message)
	// After io.EOF Receive has the error, but who sends one request does not call it.
	if err != nil && (!errors.Is(err, io.EOF) || c.spec.StreamType&connect.StreamTypeClient == 0) {
		c.end(codeOf(err))
	}
	return err
}

// admit decides a message. The call ends if the message is refused.
func (c *clientCall) admit(message any) (err error) {
	c.mu.Lock()
	refused, first := c.refused, c.undecided
	c.undecided = false
	c.mu.Unlock()
	switch {
	case refused != nil:
		return refused
	case first:
		var a admission
		a.Context = c.ctx
		if err = c.shared.admit(c.ctx, &a, c.spec, message); err == nil {
			c.settleLater(a)
		}
	case c.shared.byMessages(c.spec):
		err = c.shared.admitMessage(c.ctx, c.spec, message)
	}
	if err != nil {
		c.mu.Lock()
		c.refused = err
		c.mu.Unlock()
		c.end(codeOf(err))
		_ = c.ClientStream.Close()
	}
	return err
}

// settleLater settles a when the call ends, or now if it has.
func (c *clientCall) settleLater(a admission) {
	c.mu.Lock()
	c.admission = a
	ended, code := c.ended, c.code
	c.mu.Unlock()
	if ended {
		a.settle(c.shared.counts, code)
	}
}

// Receive receives a message. An error ends the call, io.EOF or the only message with success.
func (c *clientCall) Receive(message any) error {
	err := c.ClientStream.Receive(message)
	if err == nil {
		if c.spec.StreamType&connect.StreamTypeServer == 0 {
			c.end(0)
		}
		return nil
	}
	c.mu.Lock()
	refused := c.refused
	c.mu.Unlock()
	switch {
	case refused != nil:
		return refused
	case errors.Is(err, io.EOF):
		c.end(0)
	default:
		c.end(codeOf(err))
	}
	return err
}

// Close closes the stream. A call that has not ended yet has not succeeded.
func (c *clientCall) Close() error {
	err := c.ClientStream.Close()
	c.end(connect.CodeCanceled)
	return err
}

// end settles the call, which has ended with code. Later calls do nothing.
func (c *clientCall) end(code connect.Code) {
	c.mu.Lock()
	ended, stop := c.ended, c.stop
	c.ended, c.code = true, code
	a := c.admission
	c.mu.Unlock()
	if ended {
		return
	}
	if stop != nil {
		stop()
	}
	a.settle(c.shared.counts, code)
}
