package grpclimit

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// UnaryClientInterceptor returns an interceptor that limits the unary calls of a client. It panics
// if choose is nil or an option is only for servers.
//
// Each attempt takes the units that choose returned for the call, also the retries of grpc-go and
// of other interceptors; only claims of calls in flight are for all attempts together. An attempt
// that is not admitted is not sent, and fails with the status of a refused call. To see the
// attempts, the interceptor adds [grpc.PerRPCCredentials] to the call, around those that it has. An
// interceptor that sets others and retries has to be before this one.
func UnaryClientInterceptor(choose Choose, opts ...Option) grpc.UnaryClientInterceptor {
	e := newInterceptor(client, choose, opts)
	return func(
		ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
		invoker grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		if e.exempts(method) {
			return invoker(ctx, method, req, reply, cc, opts...)
		}
		a, err := e.admit(ctx, method, req)
		if err != nil {
			return err
		}
		t, opts := e.attemptsOf(a, opts)
		code := codes.Internal // unless the invoker returns
		defer func() { t.settle(code) }()
		err = invoker(ctx, method, req, reply, cc, opts...)
		code = codeOf(err)
		return err
	}
}

// StreamClientInterceptor returns an interceptor that limits the opening of a client's streams and,
// with [WithMessages], the messages that they send. To limit only messages, return no claims from
// choose. It panics if choose is nil or an option is only for servers. Attempts count as those of
// [UnaryClientInterceptor]; messages that grpc-go sends again count once.
//
// Units of calls in flight are released, and [WithCounting] decides, when the stream ends. A stream
// ends when RecvMsg or Header returns an error, which may be io.EOF, when SendMsg returns an error
// other than io.EOF, when the only message of a server that does not stream is received, or when
// the context ends. So receive until RecvMsg returns an error, or cancel the context.
func StreamClientInterceptor(choose Choose, opts ...Option) grpc.StreamClientInterceptor {
	e := newInterceptor(client, choose, opts)
	return func(
		ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
		streamer grpc.Streamer, opts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		if e.exempts(method) {
			return streamer(ctx, desc, cc, method, opts...)
		}
		a, err := e.admit(ctx, method, nil)
		if err != nil {
			return nil, err
		}
		if a == nil && e.messages == nil {
			return streamer(ctx, desc, cc, method, opts...)
		}
		return e.open(ctx, a, desc, cc, method, streamer, opts...)
	}
}

// open opens a stream that was admitted.
func (e *interceptor) open(
	ctx context.Context, a *admission, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
	streamer grpc.Streamer, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	ctx, cancel := context.WithCancel(ctx)
	t, opts := e.attemptsOf(a, opts)
	opened := false
	defer func() {
		if !opened { // also if the streamer panics
			cancel()
			t.settle(codes.Internal)
		}
	}()
	stream, err := streamer(ctx, desc, cc, method, opts...)
	if err != nil {
		t.settle(codeOf(err))
		return nil, err
	}
	opened = true
	stop := context.AfterFunc(ctx, func() { t.settle(codeOf(ctx.Err())) })
	return &clientStream{
		ClientStream: stream, ctx: ctx, shared: e, method: method,
		response: !desc.ServerStreams,
		end: func(code codes.Code) {
			stop()
			cancel()
			t.settle(code)
		},
	}, nil
}
