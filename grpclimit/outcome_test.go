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
