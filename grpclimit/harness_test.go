package grpclimit_test

import (
	"context"
	"net"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/grpclimit"
	"github.com/truewindow/ratelimit/internal/testkit/limittest"
)

// secret is a key that must not be in any status.
const secret = "secret-key"

func secretKey(context.Context, string) (string, error) { return secret, nil }

var (
	newClock    = limittest.NewClock
	newStore    = limittest.NewStore
	newLimiter  = limittest.NewLimiter
	newBudget   = limittest.NewBudget
	newInFlight = limittest.NewInFlight
)

// free returns how many units of the secret key are free.
func free(tb testing.TB, limiter *ratelimit.Limiter) int64 {
	tb.Helper()
	res, err := limiter.Peek(tb.Context(), secret)
	if err != nil {
		tb.Fatal(err)
	}
	return res.Remaining
}

func fixed(claims ...ratelimit.Claim) grpclimit.Choose {
	return func(context.Context, string, any) ([]ratelimit.Claim, error) { return claims, nil }
}

// broken is a store whose every call fails.
type broken struct{ err error }

func (b broken) Take(context.Context, driver.Demand) (ratelimit.Result, error) {
	return ratelimit.Result{}, b.err
}

func (b broken) TakeAll(context.Context, []driver.Demand, []ratelimit.Result) error {
	return b.err
}

// The methods of the service test.Echo.
const (
	echoMethod   = "/test.Echo/Echo"   // unary
	talkMethod   = "/test.Echo/Talk"   // streams both ways
	uploadMethod = "/test.Echo/Upload" // streams to the server
)

var talkDesc = &grpc.StreamDesc{StreamName: "Talk", ServerStreams: true, ClientStreams: true}
var uploadDesc = &grpc.StreamDesc{StreamName: "Upload", ClientStreams: true}

// echo is the service: its functions are what the methods do, by default to answer what they get.
type echo struct {
	unary  func(context.Context, *wrapperspb.StringValue) (*wrapperspb.StringValue, error)
	stream func(grpc.ServerStream) error
}

func (e *echo) echo(
	ctx context.Context, in *wrapperspb.StringValue,
) (*wrapperspb.StringValue, error) {
	if e.unary != nil {
		return e.unary(ctx, in)
	}
	return in, nil
}

func (e *echo) talk(stream grpc.ServerStream) error {
	if e.stream != nil {
		return e.stream(stream)
	}
	for {
		m := new(wrapperspb.StringValue)
		if err := stream.RecvMsg(m); err != nil {
			return endOf(err)
		}
		if err := stream.SendMsg(m); err != nil {
			return err
		}
	}
}

func endOf(err error) error {
	if err.Error() == "EOF" {
		return nil
	}
	return err
}

func (e *echo) upload(stream grpc.ServerStream) error {
	for {
		m := new(wrapperspb.StringValue)
		if err := stream.RecvMsg(m); err != nil {
			if err := endOf(err); err != nil {
				return err
			}
			return stream.SendMsg(m)
		}
	}
}

var echoDesc = grpc.ServiceDesc{
	ServiceName: "test.Echo", HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Echo", Handler: func(
		srv any, ctx context.Context, dec func(any) error, interceptor grpc.UnaryServerInterceptor,
	) (any, error) {
		in := new(wrapperspb.StringValue)
		if err := dec(in); err != nil {
			return nil, err
		}
		handler := func(ctx context.Context, req any) (any, error) {
			return srv.(*echo).echo(ctx, req.(*wrapperspb.StringValue))
		}
		if interceptor == nil {
			return handler(ctx, in)
		}
		return interceptor(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: echoMethod},
			handler)
	}}},
	Streams: []grpc.StreamDesc{
		{StreamName: "Talk", ServerStreams: true, ClientStreams: true,
			Handler: func(srv any, s grpc.ServerStream) error { return srv.(*echo).talk(s) }},
		{StreamName: "Upload", ClientStreams: true,
			Handler: func(srv any, s grpc.ServerStream) error { return srv.(*echo).upload(s) }},
	},
}

// start serves e, with health checks and reflection, and returns a client of it.
func start(
	tb testing.TB, e *echo, serverOpts []grpc.ServerOption, clientOpts ...grpc.DialOption,
) *grpc.ClientConn {
	tb.Helper()
	listener := bufconn.Listen(1 << 16)
	serve(tb, e, listener, serverOpts)
	return dial(tb, "passthrough:///bufnet", append(clientOpts,
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return listener.DialContext(ctx)
		}))...)
}

func serve(tb testing.TB, e *echo, listener net.Listener, opts []grpc.ServerOption) {
	tb.Helper()
	s := grpc.NewServer(opts...)
	s.RegisterService(&echoDesc, e)
	healthpb.RegisterHealthServer(s, health.NewServer())
	reflection.Register(s)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(listener)
	}()
	tb.Cleanup(func() {
		s.Stop()
		<-done
	})
}

func dial(tb testing.TB, target string, opts ...grpc.DialOption) *grpc.ClientConn {
	tb.Helper()
	cc, err := grpc.NewClient(target,
		append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = cc.Close() })
	return cc
}

// limited returns the options of a server whose calls and streams are limited.
func limited(choose grpclimit.Choose, opts ...grpclimit.Option) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(grpclimit.UnaryServerInterceptor(choose, opts...)),
		grpc.ChainStreamInterceptor(grpclimit.StreamServerInterceptor(choose, opts...)),
	}
}

// limitedClient is limited for clients.
func limitedClient(choose grpclimit.Choose, opts ...grpclimit.Option) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(grpclimit.UnaryClientInterceptor(choose, opts...)),
		grpc.WithChainStreamInterceptor(grpclimit.StreamClientInterceptor(choose, opts...)),
	}
}

func call(ctx context.Context, cc *grpc.ClientConn, opts ...grpc.CallOption) error {
	return cc.Invoke(ctx, echoMethod, wrapperspb.String("hello"), new(wrapperspb.StringValue),
		opts...)
}

// details are those of a status.
type details struct {
	info  *errdetails.ErrorInfo
	quota *errdetails.QuotaFailure
	retry *errdetails.RetryInfo
}

// checkStatus checks the code of err and that no part of it holds the key, and returns its details.
func checkStatus(tb testing.TB, err error, code codes.Code) (d details) {
	tb.Helper()
	s := status.Convert(err)
	if s.Code() != code {
		tb.Fatalf("%v, want %v", err, code)
	}
	if err == nil {
		return d
	}
	if text := err.Error() + s.Proto().String(); strings.Contains(text, secret) {
		tb.Errorf("the key is in the status: %s", text)
	}
	for _, detail := range s.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			d.info = detail
		case *errdetails.QuotaFailure:
			d.quota = detail
		case *errdetails.RetryInfo:
			d.retry = detail
		default:
			tb.Errorf("unexpected detail %v", detail)
		}
	}
	return d
}
