package mcplimit_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/internal/testkit/limittest"
	"github.com/truewindow/ratelimit/mcplimit"
)

// TestSession: sessions are kept apart, and requests without one over HTTP, which may be of anyone,
// share no limit: they cannot be attributed.
func TestSession(t *testing.T) {
	stateless := func(t testing.TB, server *mcp.Server, client *mcp.Client) *mcp.ClientSession {
		listening := httptest.NewServer(mcp.NewStreamableHTTPHandler(
			func(*http.Request) *mcp.Server { return server },
			&mcp.StreamableHTTPOptions{Stateless: true}))
		t.Cleanup(listening.Close)
		return session(t, client, &mcp.StreamableClientTransport{Endpoint: listening.URL})
	}
	for _, c := range []struct {
		name    string
		connect connect
		want    []string // reasons of two calls
	}{
		{"pipe", overPipe, []string{"", "exceeded"}},
		{"http", overHTTP, []string{"", "exceeded"}},
		{"stateless", stateless, []string{"unattributed", "unattributed"}},
	} {
		limiter := limittest.NewLimiter(t, limittest.NewStore(t, nil), ratelimit.PerHour("hour", 1))
		costs := map[string]int64{"work": 1}
		limit := mcplimit.Middleware(mcplimit.PerTool(limiter, mcplimit.Session, costs))
		costs["work"] = 0 // changes nothing
		server := newServer(func(context.Context) error { return nil })
		server.AddReceivingMiddleware(limit)
		session := c.connect(t, server, newClient())
		for i, want := range c.want {
			res, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "work"})
			refused, _ := mcplimit.RefusedOf(res, err)
			if refused.Reason != want {
				t.Errorf("%s: call %d: got %q, want %q", c.name, i+1, refused.Reason, want)
			}
		}
	}
}

// TestOtherRequests: a refused request that calls no tool fails with an error that has the reason,
// and the session goes on.
func TestOtherRequests(t *testing.T) {
	limiter := limittest.NewLimiter(t, limittest.NewStore(t, nil), ratelimit.PerHour("hour", 1))
	server := newServer(func(context.Context) error { return nil })
	server.AddReceivingMiddleware(mcplimit.Middleware(func(
		_ context.Context, method string, _ mcp.Request,
	) ([]ratelimit.Claim, error) {
		if method != "tools/list" {
			return nil, nil
		}
		return []ratelimit.Claim{{Limiter: limiter, Key: "k", N: 1}}, nil
	}))
	session := overPipe(t, server, newClient())
	if _, err := session.ListTools(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	_, err := session.ListTools(t.Context(), nil)
	if refused, ok := mcplimit.RefusedOf(nil, err); !ok || refused.Reason != "exceeded" ||
		len(refused.Limits) != 1 || refused.RetryAfterSeconds == 0 {
		t.Errorf("got %v, %+v", err, refused)
	}
	if err := session.Ping(t.Context(), nil); err != nil {
		t.Errorf("the session does not go on: %v", err)
	}
}
