package connectlimit_test

import (
	"context"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connectinprocess"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/connectlimit"
	"github.com/truewindow/ratelimit/internal/testkit/limittest"
)

type userKeyOfBenchmark struct{}

// bare is an interceptor that does nothing.
func bare(next connect.ServerFunc) connect.ServerFunc { return next }

func manyUnits(tb testing.TB) connect.ServerInterceptor {
	limiter := limittest.NewLimiter(tb, limittest.NewStore(tb, nil),
		ratelimit.Limit{Name: "many", Max: 1 << 20, Window: time.Millisecond})
	return connectlimit.ServerInterceptor(
		connectlimit.PerCall(limiter, connectlimit.ContextValue(userKeyOfBenchmark{})))
}

// intercepted returns a call of an interceptor alone.
func intercepted(ctx context.Context, i connect.ServerInterceptor) func() {
	run := i(func(context.Context, connect.Spec, connect.ServerStream) error { return nil })
	ctx = context.WithValue(ctx, userKeyOfBenchmark{}, "ann")
	return func() { _ = run(ctx, helloSpec, nil) }
}

// BenchmarkUnaryServer calls an interceptor alone, and a server in this process.
func BenchmarkUnaryServer(b *testing.B) {
	for _, bm := range []struct {
		name string
		i    connect.ServerInterceptor
	}{{"bare", bare}, {"limited", manyUnits(b)}} {
		b.Run("interceptor/"+bm.name, func(b *testing.B) {
			call := intercepted(b.Context(), bm.i)
			b.ReportAllocs()
			for b.Loop() {
				call()
			}
		})
		b.Run("call/"+bm.name, func(b *testing.B) {
			known := func(next connect.ServerFunc) connect.ServerFunc {
				return func(
					ctx context.Context, spec connect.Spec, s connect.ServerStream,
				) error {
					return next(context.WithValue(ctx, userKeyOfBenchmark{}, "ann"), spec, s)
				}
			}
			server := connect.NewServer(known, bm.i)
			server.Register(connect.Method{Spec: helloSpec, Handler: hello})
			client := connect.NewClient(connectinprocess.New(server))
			in, out := wrapperspb.String("Ann"), new(wrapperspb.StringValue)
			b.ReportAllocs()
			for b.Loop() {
				if err := client.CallUnary(b.Context(), helloSpec, in, out); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
