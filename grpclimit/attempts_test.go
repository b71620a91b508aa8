package grpclimit_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/grpclimit"
)

// fiveAttempts lets gRPC make five attempts of a call that gets UNAVAILABLE.
const fiveAttempts = `{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 5,
	"initialBackoff": "0.001s", "maxBackoff": "0.001s", "backoffMultiplier": 1,
	"retryableStatusCodes": ["UNAVAILABLE"]}}]}`

// failures is a service that counts attempts, all of which fail.
func failures(served *atomic.Int64) *echo {
	fail := func() error {
		served.Add(1)
		return status.Error(codes.Unavailable, "try again")
	}
	return &echo{
		unary: func(
			context.Context, *wrapperspb.StringValue,
		) (*wrapperspb.StringValue, error) {
			return nil, fail()
		},
		stream: func(grpc.ServerStream) error { return fail() },
	}
}

// again is an interceptor that makes five attempts of a call itself.
func again(
	ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
	invoker grpc.UnaryInvoker, opts ...grpc.CallOption,
) (err error) {
	for range 5 {
		if err = invoker(ctx, method, req, reply, cc, opts...); status.Code(err) !=
			codes.Unavailable {
			break
		}
	}
	return err
}

// TestClientCountsAttempts: of 50 attempts of 10 calls, as many reach the server as the limit
// admits, whoever repeats the call.
func TestClientCountsAttempts(t *testing.T) {
	config := grpc.WithDefaultServiceConfig(fiveAttempts)
	for _, tt := range []struct {
		name   string
		stream bool
		opts   func(unary grpc.UnaryClientInterceptor) []grpc.DialOption
	}{
		{"gRPC", false, func(i grpc.UnaryClientInterceptor) []grpc.DialOption {
			return []grpc.DialOption{config, grpc.WithChainUnaryInterceptor(i)}
		}},
		{"gRPC, streams", true, func(grpc.UnaryClientInterceptor) []grpc.DialOption {
			return []grpc.DialOption{config}
		}},
		{"an outer interceptor", false, func(i grpc.UnaryClientInterceptor) []grpc.DialOption {
			return []grpc.DialOption{grpc.WithChainUnaryInterceptor(again, i)}
		}},
		{"an inner interceptor", false, func(i grpc.UnaryClientInterceptor) []grpc.DialOption {
			return []grpc.DialOption{grpc.WithChainUnaryInterceptor(i, again)}
		}},
		{"gRPC, with two limiters", false,
			func(i grpc.UnaryClientInterceptor) []grpc.DialOption {
				wide := grpclimit.UnaryClientInterceptor(grpclimit.PerCall(
					newLimiter(t, newStore(t, newClock()), ratelimit.PerHour("wide", 1000)),
					secretKey))
				return []grpc.DialOption{config, grpc.WithChainUnaryInterceptor(i, wide)}
			}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			limiter := newLimiter(t, newStore(t, newClock()), ratelimit.PerHour("hour", 10))
			choose := grpclimit.PerCall(limiter, secretKey)
			var served atomic.Int64
			cc := start(t, failures(&served), nil, append(
				tt.opts(grpclimit.UnaryClientInterceptor(choose)),
				grpc.WithChainStreamInterceptor(grpclimit.StreamClientInterceptor(choose)))...)
			var local atomic.Int64
			var calls sync.WaitGroup
			for range 10 {
				calls.Go(func() {
					var err error
					if tt.stream {
						err = openTalk(t.Context(), cc)
					} else {
						err = call(t.Context(), cc)
					}
					if grpclimit.IsLocal(err) {
						checkStatus(t, err, codes.ResourceExhausted)
						local.Add(1)
					} else {
						checkStatus(t, err, codes.Unavailable)
					}
				})
			}
			calls.Wait()
			if got := served.Load(); got != 10 {
				t.Errorf("the server got %d attempts, want 10", got)
			}
			if got := free(t, limiter); got != 0 {
				t.Errorf("%d units are free", got)
			}
			if local.Load() < 8 { // at most two calls had five attempts
				t.Errorf("%d calls were refused", local.Load())
			}
		})
	}
}

func openTalk(ctx context.Context, cc *grpc.ClientConn) error {
	stream, err := cc.NewStream(ctx, talkDesc, talkMethod)
	if err != nil {
		return err
	}
	return stream.RecvMsg(new(wrapperspb.StringValue))
}

// TestAttemptsWait: with WithWait a further attempt waits for its turn.
func TestAttemptsWait(t *testing.T) {
	limiter := newLimiter(t, newStore(t, nil),
		ratelimit.Limit{Name: "short", Max: 1, Window: 20 * time.Millisecond})
	var served atomic.Int64
	cc := start(t, failures(&served), nil, append(
		limitedClient(grpclimit.PerCall(limiter, secretKey), grpclimit.WithWait()),
		grpc.WithDefaultServiceConfig(fiveAttempts))...)
	began := time.Now()
	checkStatus(t, call(t.Context(), cc), codes.Unavailable)
	if took := time.Since(began); served.Load() != 5 || took < 80*time.Millisecond {
		t.Errorf("%d attempts in %v", served.Load(), took)
	}
}

// TestAttemptsSettle: a call in flight counts once whatever its attempts, and the units of all
// attempts depend on the outcome of the call.
func TestAttemptsSettle(t *testing.T) {
	store := newStore(t, newClock())
	rate := newBudget(t, store, ratelimit.PerHour("hour", 100))
	calls := newInFlight(t, store, 1)
	choose := fixed(ratelimit.Claim{Limiter: rate, Key: secret, N: 2},
		ratelimit.Claim{Limiter: calls, Key: secret, N: 1})
	for _, counts := range []bool{true, false} {
		var served atomic.Int64
		cc := start(t, failures(&served), nil, append(limitedClient(choose,
			grpclimit.WithCounting(func(codes.Code) bool { return counts })),
			grpc.WithDefaultServiceConfig(fiveAttempts))...)
		before := free(t, rate)
		checkStatus(t, call(t.Context(), cc), codes.Unavailable)
		want := int64(0)
		if counts {
			want = 10
		}
		if got := before - free(t, rate); served.Load() != 5 || got != want {
			t.Errorf("%d attempts took %d units, want %d", served.Load(), got, want)
		}
		if free(t, calls) != 1 {
			t.Error("the call stays in flight")
		}
	}
}

// password are credentials of a call.
type password struct{ secure bool }

func (password) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"password": "sesame"}, nil
}

func (p password) RequireTransportSecurity() bool { return p.secure }

// TestAttemptsKeepCredentials: the credentials of a call are sent, and refused where they were.
func TestAttemptsKeepCredentials(t *testing.T) {
	var got []string
	e := &echo{unary: func(
		ctx context.Context, in *wrapperspb.StringValue,
	) (*wrapperspb.StringValue, error) {
		got = metadata.ValueFromIncomingContext(ctx, "password")
		return in, nil
	}}
	limiter := newLimiter(t, newStore(t, newClock()), ratelimit.PerHour("hour", 100))
	cc := start(t, e, nil, limitedClient(grpclimit.PerCall(limiter, secretKey))...)
	err := call(t.Context(), cc, grpc.PerRPCCredentials(password{}))
	if err != nil || len(got) != 1 || got[0] != "sesame" {
		t.Errorf("%v, %q", err, got)
	}
	err = call(t.Context(), cc, grpc.PerRPCCredentials(password{secure: true}))
	checkStatus(t, err, codes.Unauthenticated)
}
