package grpclimit_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/grpclimit"
)

// TestCause: an outer interceptor finds why a call was not decided, which no status has.
func TestCause(t *testing.T) {
	broken := errors.New("the secret database is down")
	for name, c := range map[string]struct {
		claims []ratelimit.Claim
		err    error
		want   error
	}{
		"misconfigured": {claims: []ratelimit.Claim{{Key: "k", N: 1}}, want: ratelimit.ErrInvalid},
		"unattributed":  {err: broken, want: broken},
	} {
		limit := grpclimit.UnaryServerInterceptor(
			func(context.Context, string, any) ([]ratelimit.Claim, error) {
				return c.claims, c.err
			})
		_, err := limit(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/a.A/B"}, nil)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want one that wraps %v", name, err, c.want)
		}
		if told := status.Convert(err); strings.Contains(told.String(), c.want.Error()) {
			t.Errorf("%s: the caller is told %v", name, told)
		}
		if grpclimit.IsLocal(err) {
			t.Errorf("%s: the error of a server is local", name)
		}
	}
}
