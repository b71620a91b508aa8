package grpclimit_test

import (
	"context"
	"io"
	"slices"
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

// TestCountingPanics: a panic of the function that counts leaves no call in flight.
func TestCountingPanics(t *testing.T) {
	store := newStore(t, newClock())
	calls := newInFlight(t, store, 1)
	rate := newBudget(t, store, ratelimit.PerHour("rate", 9))
	choose := fixed(ratelimit.Claim{Limiter: calls, Key: secret, N: 1},
		ratelimit.Claim{Limiter: rate, Key: secret, N: 1})
	i := grpclimit.UnaryServerInterceptor(choose,
		grpclimit.WithCounting(func(codes.Code) bool { panic("counting") }))
	func() {
		defer func() {
			if got := recover(); got != "counting" {
				t.Errorf("panic %v", got)
			}
		}()
		_, _ = i(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: echoMethod},
			func(context.Context, any) (any, error) { return nil, nil })
	}()
	if got := free(t, calls); got != 1 {
		t.Errorf("%d calls are free, want 1", got)
	}
	if got := free(t, rate); got != 8 {
		t.Errorf("%d units are free, want 8: they count if counted panics", got)
	}
}

// TestCountingNeedsBudget: without a Budget no unit depends on the outcome, which is a mistake.
func TestCountingNeedsBudget(t *testing.T) {
	rate := newLimiter(t, newStore(t, newClock()), ratelimit.PerHour("rate", 9))
	i := grpclimit.UnaryServerInterceptor(grpclimit.PerCall(rate, secretKey),
		grpclimit.WithCounting(func(codes.Code) bool { return true }))
	_, err := i(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: echoMethod},
		func(context.Context, any) (any, error) { return nil, nil })
	checkStatus(t, err, codes.Internal)
	if got := free(t, rate); got != 9 {
		t.Errorf("%d units are free, want 9", got)
	}
}

// TestCountingByClaim: only the claim on a Budget follows the outcome.
func TestCountingByClaim(t *testing.T) {
	const logins, most = 40, 30
	store := newStore(t, newClock())
	requests := newLimiter(t, store, ratelimit.PerHour("requests", most))
	failed := newBudget(t, store, ratelimit.PerHour("failed", logins))
	i := grpclimit.UnaryServerInterceptor(
		fixed(ratelimit.Claim{Limiter: requests, Key: secret, N: 1},
			ratelimit.Claim{Limiter: failed, Key: secret, N: 1}),
		grpclimit.WithCounting(func(c codes.Code) bool { return c == codes.Unauthenticated }))
	var admitted, wrong atomic.Int64
	var wg sync.WaitGroup
	for n := range logins {
		wg.Go(func() {
			_, _ = i(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: echoMethod},
				func(context.Context, any) (any, error) {
					if admitted.Add(1); n%2 == 0 {
						return nil, nil
					}
					wrong.Add(1)
					return nil, status.Error(codes.Unauthenticated, "")
				})
		})
	}
	wg.Wait()
	if admitted.Load() != most || free(t, requests) != 0 ||
		free(t, failed) != logins-wrong.Load() {
		t.Errorf("%d admitted, %d requests and %d logins left; %d were wrong", admitted.Load(),
			free(t, requests), free(t, failed), wrong.Load())
	}
}

// TestCountingRefusedMessage: a stream that ends because a client's own limit refuses a message has
// the code of that refusal, not that of the cancellation that follows.
func TestCountingRefusedMessage(t *testing.T) {
	store := newStore(t, newClock())
	opening := newBudget(t, store, ratelimit.PerHour("streams", 1_000_000))
	messages := newLimiter(t, store, ratelimit.PerHour("messages", 1))
	if _, err := messages.Allow(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	ended := make(chan codes.Code, 1)
	i := grpclimit.StreamClientInterceptor(grpclimit.PerCall(opening, secretKey),
		grpclimit.WithMessages(grpclimit.PerCall(messages, secretKey)),
		grpclimit.WithCounting(func(code codes.Code) bool { ended <- code; return true }))
	for range 300 {
		s, err := i(t.Context(), talkDesc, nil, talkMethod, func(context.Context,
			*grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption,
		) (grpc.ClientStream, error) {
			return failing{}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		checkStatus(t, s.SendMsg(nil), codes.ResourceExhausted)
		if code := <-ended; code != codes.ResourceExhausted {
			t.Fatalf("the stream has ended with %v", code)
		}
	}
}

// TestStreamPanics: a stream whose handler panics ends with Internal, and leaves no call in flight.
func TestStreamPanics(t *testing.T) {
	calls := newInFlight(t, newStore(t, newClock()), 1)
	var ended []codes.Code
	i := grpclimit.StreamServerInterceptor(grpclimit.PerCall(calls, secretKey),
		grpclimit.WithCounting(func(code codes.Code) bool {
			ended = append(ended, code)
			return true
		}))
	func() {
		defer func() {
			if got := recover(); got != "planned" {
				t.Errorf("panic %v", got)
			}
		}()
		_ = i(nil, serverStream{ctx: t.Context()}, &grpc.StreamServerInfo{FullMethod: talkMethod},
			func(any, grpc.ServerStream) error { panic("planned") })
	}()
	if !slices.Equal(ended, []codes.Code{codes.Internal}) {
		t.Errorf("ended with %v", ended)
	}
	if got := free(t, calls); got != 1 {
		t.Errorf("%d calls are free, want 1", got)
	}
}

// serverStream is a stream that has only a context.
type serverStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s serverStream) Context() context.Context { return s.ctx }

// TestCountingClientStream: a stream of a client counts by the code with which it has ended.
func TestCountingClientStream(t *testing.T) {
	limiter := newBudget(t, newStore(t, newClock()), ratelimit.PerHour("streams", 100))
	result := codes.OK
	e := &echo{stream: func(grpc.ServerStream) error { return status.Error(result, "") }}
	ended := make(chan codes.Code, 1)
	cc := start(t, e, nil, limitedClient(grpclimit.PerCall(limiter, secretKey),
		grpclimit.WithCounting(func(code codes.Code) bool { ended <- code; return true }))...)
	for _, result = range []codes.Code{codes.OK, codes.NotFound} {
		s := open(t, cc, talkDesc, talkMethod)
		_ = s.RecvMsg(new(wrapperspb.StringValue))
		if got := <-ended; got != result {
			t.Errorf("counted as %v, want %v", got, result)
		}
	}
	upload := open(t, cc, uploadDesc, uploadMethod)
	_ = upload.CloseSend()
	if err := upload.RecvMsg(new(wrapperspb.StringValue)); err != nil {
		t.Error(err)
	}
	if got := <-ended; got != codes.OK {
		t.Errorf("an upload counted as %v", got)
	}
}

// TestPushback: only with the option is the trailer sent, also for a message that is refused. It is
// rounded up.
func TestPushback(t *testing.T) {
	clock := newClock()
	limiter := newLimiter(t, newStore(t, clock), ratelimit.PerHour("hour", 1))
	if _, err := limiter.Allow(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	choose := grpclimit.PerCall(limiter, secretKey)
	pushback := []grpclimit.Option{grpclimit.WithPushback()}
	for _, tt := range []struct {
		opts    []grpclimit.Option
		advance time.Duration
		want    []string
	}{
		{nil, 0, nil},
		{pushback, 0, []string{"3600000"}},
		{pushback, 999 * time.Microsecond, []string{"3600000"}},
		{pushback, time.Hour - time.Millisecond, []string{"1"}},
	} {
		clock.Advance(tt.advance)
		var trailer metadata.MD
		cc := start(t, &echo{}, limited(choose, tt.opts...))
		checkStatus(t, call(t.Context(), cc, grpc.Trailer(&trailer)), codes.ResourceExhausted)
		if got := trailer.Get("grpc-retry-pushback-ms"); !slices.Equal(got, tt.want) {
			t.Errorf("a call: push-back %q, want %q", got, tt.want)
		}
		cc = start(t, &echo{}, limited(fixed(),
			append(tt.opts, grpclimit.WithMessages(choose))...))
		s := open(t, cc, talkDesc, talkMethod)
		checkStatus(t, talk(s), codes.ResourceExhausted)
		if got := s.Trailer().Get("grpc-retry-pushback-ms"); !slices.Equal(got, tt.want) {
			t.Errorf("a message: push-back %q, want %q", got, tt.want)
		}
	}
}

// TestExemptByExactName: a service with a similar name is limited.
func TestExemptByExactName(t *testing.T) {
	limiter := newLimiter(t, newStore(t, newClock()), ratelimit.PerHour("hour", 1))
	if _, err := limiter.Allow(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	i := grpclimit.UnaryServerInterceptor(grpclimit.PerCall(limiter, secretKey),
		grpclimit.WithDomain(""))
	for _, method := range []string{
		"//grpc.health.v1.Health/Check", "/grpc.health.v1.Health//Check",
		"/Grpc.health.v1.Health/Check", "/grpc.health.v1.Healthy/Check",
		"/test.grpc.health.v1.Health/Check", "/grpc.health.v1.Health", "",
	} {
		_, err := i(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: method},
			func(context.Context, any) (any, error) { return nil, nil })
		d := checkStatus(t, err, codes.ResourceExhausted)
		if got := d.info.GetDomain(); got != grpclimit.DefaultDomain {
			t.Errorf("domain %q", got)
		}
	}
}

// TestCountingWithoutStore: if the policy has admitted a call, nothing is left to settle, and the
// unavailable store is not called a second time.
func TestCountingWithoutStore(t *testing.T) {
	for _, counted := range []bool{true, false} {
		asked := 0
		limiter := newBudget(t, broken{ratelimit.ErrUnavailable}, ratelimit.PerHour("hour", 9)).
			WithPolicy(ratelimit.FailOpen).WithObserver(
			func(context.Context, ratelimit.Observation) { asked++ })
		i := grpclimit.UnaryServerInterceptor(grpclimit.PerCall(limiter, secretKey),
			grpclimit.WithCounting(func(codes.Code) bool { return counted }))
		_, err := i(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: echoMethod},
			func(context.Context, any) (any, error) { return nil, nil })
		if err != nil || asked != 1 {
			t.Errorf("counted %v: %v, the store was called %d times, want 1", counted, err, asked)
		}
	}
}

// TestSendAfterEnd: sending on a stream that the server has ended returns io.EOF, as without the
// interceptor, and takes no unit.
func TestSendAfterEnd(t *testing.T) {
	limiter := newLimiter(t, newStore(t, newClock()), ratelimit.PerHour("messages", 9))
	result := codes.OK
	e := &echo{stream: func(grpc.ServerStream) error { return status.Error(result, "") }}
	messages := grpclimit.WithMessages(grpclimit.PerCall(limiter, secretKey))
	for name, opts := range map[string][]grpc.DialOption{
		"without":  nil,
		"messages": limitedClient(fixed(), messages),
		"calls":    limitedClient(grpclimit.PerCall(limiter, secretKey)),
	} {
		cc := start(t, e, nil, opts...)
		for _, result = range []codes.Code{codes.OK, codes.NotFound} {
			s := open(t, cc, talkDesc, talkMethod)
			before := free(t, limiter)
			end := s.RecvMsg(new(wrapperspb.StringValue))
			if end != io.EOF {
				checkStatus(t, end, result)
			}
			for range 2 {
				if err := s.SendMsg(wrapperspb.String("late")); err != io.EOF {
					t.Errorf("%s, %v: %v, want io.EOF", name, result, err)
				}
			}
			again := s.RecvMsg(new(wrapperspb.StringValue))
			if status.Code(again) != status.Code(end) {
				t.Errorf("%s, %v: then received %v", name, result, again)
			}
			if got := free(t, limiter); got != before {
				t.Errorf("%s, %v: %d units were taken", name, result, before-got)
			}
		}
	}
}

// TestSendWaitsUntilEnd: when the stream ends, SendMsg stops waiting, and RecvMsg still returns the
// status of the stream.
func TestSendWaitsUntilEnd(t *testing.T) {
	limiter := newLimiter(t, newStore(t, nil), ratelimit.PerHour("messages", 1))
	if _, err := limiter.Allow(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	asked, proceed := make(chan struct{}), make(chan struct{})
	e := &echo{stream: func(grpc.ServerStream) error {
		<-proceed
		return status.Error(codes.NotFound, "")
	}}
	choose := func(context.Context, string, any) ([]ratelimit.Claim, error) {
		close(asked)
		return []ratelimit.Claim{{Limiter: limiter, Key: secret, N: 1}}, nil
	}
	cc := start(t, e, nil, limitedClient(fixed(), grpclimit.WithMessages(choose),
		grpclimit.WithWait())...)
	s := open(t, cc, talkDesc, talkMethod)
	sent := make(chan error)
	go func() { sent <- s.SendMsg(wrapperspb.String("hello")) }()
	<-asked
	close(proceed)
	for range 2 {
		checkStatus(t, s.RecvMsg(new(wrapperspb.StringValue)), codes.NotFound)
	}
	if err := <-sent; err != io.EOF {
		t.Errorf("%v, want io.EOF", err)
	}
	checkStatus(t, s.RecvMsg(new(wrapperspb.StringValue)), codes.NotFound)
}
