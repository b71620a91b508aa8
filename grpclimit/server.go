package grpclimit

import (
	"context"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// UnaryServerInterceptor returns an interceptor that limits the unary calls of a server. It panics
// if choose is nil or an option is only for clients.
func UnaryServerInterceptor(choose Choose, opts ...Option) grpc.UnaryServerInterceptor {
	e := newInterceptor(server, choose, opts)
	return func(
		ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
	) (resp any, err error) {
		if e.exempts(info.FullMethod) {
			return handler(ctx, req)
		}
		a, err := e.admit(ctx, info.FullMethod, req)
		if err != nil {
			e.pushBack(err, func(md metadata.MD) { _ = grpc.SetTrailer(ctx, md) })
			return nil, err
		}
		if a == nil {
			return handler(ctx, req)
		}
		code := codes.Internal // unless the handler returns
		defer func() { a.settle(e.counts, code) }()
		resp, err = handler(a, req)
		code = codeOf(err)
		return resp, err
	}
}

// StreamServerInterceptor returns an interceptor that limits the opening of a server's streams and,
// with [WithMessages], the messages that they receive. To limit only messages, return no claims
// from choose. It panics if choose is nil or an option is only for clients.
func StreamServerInterceptor(choose Choose, opts ...Option) grpc.StreamServerInterceptor {
	e := newInterceptor(server, choose, opts)
	return func(
		srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler,
	) error {
		if e.exempts(info.FullMethod) {
			return handler(srv, stream)
		}
		ctx := stream.Context()
		a, err := e.admit(ctx, info.FullMethod, nil)
		if err != nil {
			e.pushBack(err, stream.SetTrailer)
			return err
		}
		code := codes.Internal // unless the handler returns
		defer func() { a.settle(e.counts, code) }()
		err = handler(srv, &serverStream{
			ServerStream: stream, ctx: a.contextOr(ctx), shared: e, method: info.FullMethod,
		})
		code = codeOf(err)
		return err
	}
}

// pushBack sets the trailer that the automatic retries of clients follow.
func (e *interceptor) pushBack(err error, setTrailer func(metadata.MD)) {
	if !e.pushback {
		return
	}
	ms := int64(-1) // do not retry
	for _, detail := range status.Convert(err).Details() {
		if retry, ok := detail.(*errdetails.RetryInfo); ok {
			delay := retry.GetRetryDelay().AsDuration()
			ms = int64((delay + time.Millisecond - 1) / time.Millisecond)
		}
	}
	if ms < 0 && status.Code(err) != codes.ResourceExhausted {
		return // no limit has refused the call
	}
	setTrailer(metadata.Pairs("grpc-retry-pushback-ms", strconv.FormatInt(ms, 10)))
}
