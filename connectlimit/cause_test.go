package connectlimit_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"connectrpc.com/connect/v2"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/connectlimit"
)

// TestCause: an outer interceptor finds why a call was not decided, which no caller is told.
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
		limit := connectlimit.ServerInterceptor(
			func(context.Context, string, any) ([]ratelimit.Claim, error) {
				return c.claims, c.err
			})
		err := limit(nil)(t.Context(), specOf(connect.StreamTypeUnary), nil)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want one that wraps %v", name, err, c.want)
		}
		if told := err.Error(); strings.Contains(told, c.want.Error()) {
			t.Errorf("%s: the caller is told %s", name, told)
		}
	}
}
