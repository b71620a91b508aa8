package connectv1_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/connectlimit/connectv1"
	"github.com/truewindow/ratelimit/httplimit"
	"github.com/truewindow/ratelimit/internal/testkit/adaptertest"
	"github.com/truewindow/ratelimit/internal/testkit/limittest"
)

// TestCodes: the error of a Choose decides the code, and its text is not sent.
func TestCodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		want connect.Code
	}{
		{errors.New("secret"), connect.CodeInvalidArgument},
		{&httplimit.StatusError{Status: http.StatusUnauthorized}, connect.CodeUnauthenticated},
		{&httplimit.StatusError{Status: http.StatusForbidden}, connect.CodePermissionDenied},
		{connect.NewError(connect.CodeNotFound, errors.New("secret")), connect.CodeNotFound},
	} {
		limit := httplimit.New(func(*http.Request) ([]ratelimit.Claim, error) {
			return nil, c.err
		}, connectv1.WithErrors(""))
		work := func(context.Context) error { return nil }
		url := adaptertest.ServeHTTP(t, limit(handlers(work)))
		client := connect.NewClient[message, message](http.DefaultClient, url+unary)
		_, err := client.CallUnary(t.Context(), connect.NewRequest(new(message)))
		if connect.CodeOf(err) != c.want || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v: got %v, want %v", c.err, err, c.want)
		}
	}
}

// TestOtherRequests: a request of no protocol gets the answer of package httplimit.
func TestOtherRequests(t *testing.T) {
	limiter := limittest.NewBudget(t, limittest.NewStore(t, nil), ratelimit.PerHour("hour", 1))
	limit := httplimit.New(httplimit.PerKey(limiter, connectv1.Procedure),
		connectv1.WithErrors("example.com"))
	url := adaptertest.ServeHTTP(t, limit(http.NotFoundHandler()))
	for i, want := range []string{"404", `"violated-policies":["hour"]`} {
		res, err := http.Post(url, "text/plain", strings.NewReader("hello"))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || !strings.Contains(string(body), want) {
			t.Errorf("request %d: got %s, %v", i, body, err)
		}
	}
}
