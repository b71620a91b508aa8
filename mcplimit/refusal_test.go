package mcplimit_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/internal/testkit/limittest"
	"github.com/truewindow/ratelimit/mcplimit"
)

func always(claims ...ratelimit.Claim) mcplimit.Choose {
	return func(context.Context, string, mcp.Request) ([]ratelimit.Claim, error) {
		return claims, nil
	}
}

// TestWait: a model that waits for as long as it is told is admitted.
func TestWait(t *testing.T) {
	for _, c := range []struct {
		wait    time.Duration
		seconds int64
		text    string
	}{
		{time.Microsecond, 1, "Rate limit exceeded: calls. Wait a second, then try again."},
		{time.Second, 1, "Rate limit exceeded: calls. Wait a second, then try again."},
		{time.Second + 1000, 2, "Rate limit exceeded: calls. Wait 2 seconds, then try again."},
		{time.Hour, 3600, "Rate limit exceeded: calls. Wait 3600 seconds, then try again."},
	} {
		clock := limittest.NewClock()
		store := limittest.NewStore(t, clock)
		limiter := limittest.NewLimiter(t, store, ratelimit.PerHour("calls", 1))
		claim := ratelimit.Claim{Limiter: limiter, Key: "k", N: 1}
		server := newServer(func(context.Context) error { return nil })
		server.AddReceivingMiddleware(mcplimit.Middleware(func(
			_ context.Context, _ string, req mcp.Request,
		) ([]ratelimit.Claim, error) {
			if _, ok := mcplimit.ToolOf(req); !ok {
				return nil, nil
			}
			return []ratelimit.Claim{claim}, nil
		}))
		session := overPipe(t, server, newClient())
		work := func() *mcp.CallToolResult {
			res, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "work"})
			if err != nil {
				t.Fatal(err)
			}
			return res
		}
		if res := work(); res.IsError {
			t.Fatalf("refused: %+v", res)
		}
		clock.Advance(time.Hour - c.wait)
		res := work()
		text, _ := res.Content[0].(*mcp.TextContent)
		refused, _ := mcplimit.RefusedOf(res, nil)
		if refused.RetryAfterSeconds != c.seconds || text.Text != c.text {
			t.Errorf("%v: told %d and %q", c.wait, refused.RetryAfterSeconds, text.Text)
		}
		clock.Advance(time.Duration(refused.RetryAfterSeconds) * time.Second)
		if res := work(); res.IsError {
			t.Errorf("refused after %v: %+v", c.wait, res)
		}
	}
}

// TestCause: an earlier middleware finds why a call was not decided, which no client is told.
func TestCause(t *testing.T) {
	broken := errors.New("the secret database is down")
	for name, c := range map[string]struct {
		choose mcplimit.Choose
		want   error
	}{
		"misconfigured": {always(ratelimit.Claim{Key: "k", N: 1}), ratelimit.ErrInvalid},
		"unattributed": {func(context.Context, string, mcp.Request) ([]ratelimit.Claim, error) {
			return nil, broken
		}, broken},
	} {
		res, err := mcplimit.Middleware(c.choose)(nil)(t.Context(), "tools/call",
			&mcp.ServerRequest[*mcp.CallToolParamsRaw]{Params: new(mcp.CallToolParamsRaw)})
		called, ok := res.(*mcp.CallToolResult)
		if err != nil || !ok || !called.IsError || !errors.Is(called.GetError(), c.want) {
			t.Fatalf("%s: got %+v, %v", name, res, err)
		}
		told, err := json.Marshal(res)
		if err != nil || strings.Contains(string(told), c.want.Error()) {
			t.Errorf("%s: the client is told %s, %v", name, told, err)
		}
	}
}

// TestResultType: a refused call of a tool has the fields that its version of the protocol demands.
func TestResultType(t *testing.T) {
	limiter := limittest.NewLimiter(t, limittest.NewStore(t, nil), ratelimit.PerHour("hour", 1))
	server := newServer(func(context.Context) error { return nil })
	server.AddReceivingMiddleware(mcplimit.Middleware(mcplimit.PerTool(limiter,
		func(context.Context, mcp.Request) (string, error) { return "k", nil }, nil)))
	listening := httptest.NewServer(mcp.NewStreamableHTTPHandler(
		func(*http.Request) *mcp.Server { return server },
		&mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true}))
	defer listening.Close()
	for i, version := range []string{"2026-07-28", "2026-07-28", "2025-06-18"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, listening.URL,
			strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":`+
				`{"name":"work","arguments":{},"_meta":{`+
				`"io.modelcontextprotocol/protocolVersion":"`+version+`",`+
				`"io.modelcontextprotocol/clientInfo":{"name":"test","version":"v1"},`+
				`"io.modelcontextprotocol/clientCapabilities":{}}}}`))
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{"Content-Type": "application/json",
			"Accept": "application/json, text/event-stream", "Mcp-Protocol-Version": version,
			"Mcp-Method": "tools/call", "Mcp-Name": "work"} {
			req.Header.Set(name, value)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		var told struct {
			Result struct {
				IsError    bool
				ResultType string
			}
		}
		if err := json.Unmarshal(body, &told); err != nil {
			t.Fatalf("%v: %s", err, body)
		}
		want := ""
		if version >= "2026-07-28" {
			want = "complete"
		}
		if told.Result.IsError != (i > 0) || told.Result.ResultType != want {
			t.Errorf("call %d, %s: %s", i+1, version, body)
		}
	}
}
