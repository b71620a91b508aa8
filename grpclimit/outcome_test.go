package grpclimit_test

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/grpclimit"
)

// TestCountingPanics: a panic of the function that counts leaves no call in flight.
func TestCountingPanics(t *testing.T) {
	store := newStore(t, newClock())
	calls := newInFlight(t, store, 1)
	rate := newLimiter(t, store, ratelimit.PerHour("rate", 9))
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
		t.Errorf("%d units are free, want 8: what is not decided counts", got)
	}
}

// TestCountingRefusedMessage: a stream that a client's own limit of messages ends has the code of
// that refusal, not that of the cancellation that follows from it.
func TestCountingRefusedMessage(t *testing.T) {
	store := newStore(t, newClock())
	opening := newLimiter(t, store, ratelimit.PerHour("streams", 1_000_000))
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
