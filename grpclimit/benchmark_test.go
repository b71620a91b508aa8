package grpclimit_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/grpclimit"
)

// bare is an interceptor that does nothing.
func bare(
	ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (any, error) {
	return handler(ctx, req)
}

// unaryCall returns a call of an interceptor with a key from metadata.
func unaryCall(ctx context.Context, i grpc.UnaryServerInterceptor) func() {
	ctx = metadata.NewIncomingContext(ctx, metadata.Pairs("x-user", "ann"))
	info := &grpc.UnaryServerInfo{FullMethod: echoMethod}
	handler := func(context.Context, any) (any, error) { return nil, nil }
	return func() { _, _ = i(ctx, nil, info, handler) }
}

func manyUnits(tb testing.TB) grpc.UnaryServerInterceptor {
	limiter := newLimiter(tb, newStore(tb, nil),
		ratelimit.Limit{Name: "many", Max: 1 << 20, Window: time.Millisecond})
	return grpclimit.UnaryServerInterceptor(
		grpclimit.PerCall(limiter, grpclimit.Metadata("x-user")))
}

func BenchmarkUnaryServer(b *testing.B) {
	for _, bm := range []struct {
		name string
		i    grpc.UnaryServerInterceptor
	}{{"bare", bare}, {"limited", manyUnits(b)}} {
		b.Run(bm.name, func(b *testing.B) {
			call := unaryCall(b.Context(), bm.i)
			b.ReportAllocs()
			for b.Loop() {
				call()
			}
		})
	}
}
