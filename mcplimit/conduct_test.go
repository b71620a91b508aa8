package mcplimit_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/edge"
	"github.com/truewindow/ratelimit/internal/testkit/adaptertest"
	"github.com/truewindow/ratelimit/mcplimit"
)

// A connect function connects a client and a server, until the test ends.
type connect func(t testing.TB, server *mcp.Server, client *mcp.Client) *mcp.ClientSession

// TestConduct: the middleware has the conduct of all adapters, on both sides, over pipes such as
// those of standard input and output, and over streamable HTTP.
func TestConduct(t *testing.T) {
	for name, connect := range map[string]connect{"pipe": overPipe, "http": overHTTP} {
		t.Run("server, "+name, func(t *testing.T) {
			t.Parallel()
			adaptertest.Run(t, adaptertest.Adapter{
				Serve: func(t testing.TB, s adaptertest.Service) adaptertest.Call {
					server := newServer(s.Work)
					server.AddReceivingMiddleware(recovering, middleware(s))
					return conductCall(connect(t, server, newClient()))
				},
				Lacks: map[string]string{"wait": "a server does not wait"},
			})
		})
		t.Run("client, "+name, func(t *testing.T) {
			t.Parallel()
			adaptertest.Run(t, adaptertest.Adapter{
				Serve: func(t testing.TB, s adaptertest.Service) adaptertest.Call {
					server, client := newServer(s.Work), newClient()
					server.AddReceivingMiddleware(recovering)
					client.AddSendingMiddleware(middleware(s))
					return conductCall(connect(t, server, client))
				},
			})
		})
	}
}

// wordKey is the key of the Meta that carries the word of a call.
const wordKey = "example.com/word"

func middleware(s adaptertest.Service) mcp.Middleware {
	var opts []mcplimit.Option
	if s.Counting {
		opts = append(opts, mcplimit.WithCost(
			func(_ mcp.Request, res mcp.Result, err error) int64 {
				if called, ok := res.(*mcp.CallToolResult); err != nil || ok && called.IsError {
					return 0
				}
				return 1
			}))
	}
	if s.Wait {
		opts = append(opts, mcplimit.WithWait())
	}
	return mcplimit.Middleware(func(
		_ context.Context, _ string, req mcp.Request,
	) ([]ratelimit.Claim, error) {
		if _, ok := mcplimit.ToolOf(req); !ok {
			return nil, nil
		}
		word, _ := req.GetParams().GetMeta()[wordKey].(string)
		return s.Choose(word)
	}, opts...)
}

func newServer(work func(context.Context) error) *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "v1.0.0"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "work"}, func(
		ctx context.Context, _ *mcp.CallToolRequest, _ struct{},
	) (*mcp.CallToolResult, any, error) {
		return nil, nil, work(ctx)
	})
	return server
}

func newClient() *mcp.Client {
	return mcp.NewClient(&mcp.Implementation{Name: "test", Version: "v1.0.0"}, nil)
}

// recovering lets a server go on after a panic of a handler.
func recovering(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (res mcp.Result, err error) {
		defer func() {
			if p := recover(); p != nil {
				err = errors.New("panic")
			}
		}()
		return next(ctx, method, req)
	}
}

func overPipe(t testing.TB, server *mcp.Server, client *mcp.Client) *mcp.ClientSession {
	clientSide, serverSide := mcp.NewInMemoryTransports()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	serving, err := server.Connect(ctx, serverSide, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = serving.Wait() })
	return session(t, client, clientSide)
}

func overHTTP(t testing.TB, server *mcp.Server, client *mcp.Client) *mcp.ClientSession {
	listening := httptest.NewServer(mcp.NewStreamableHTTPHandler(
		func(*http.Request) *mcp.Server { return server }, nil))
	t.Cleanup(listening.Close)
	return session(t, client, &mcp.StreamableClientTransport{Endpoint: listening.URL})
}

func session(t testing.TB, client *mcp.Client, transport mcp.Transport) *mcp.ClientSession {
	s, err := client.Connect(t.Context(), transport, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func conductCall(s *mcp.ClientSession) adaptertest.Call {
	return func(ctx context.Context, word string) adaptertest.Answer {
		res, err := s.CallTool(ctx,
			&mcp.CallToolParams{Meta: mcp.Meta{wordKey: word}, Name: "work"})
		return answerOf(res, err)
	}
}

// answerOf reads an answer of package mcplimit.
func answerOf(res *mcp.CallToolResult, err error) (a adaptertest.Answer) {
	if err != nil {
		a.Text = err.Error()
	} else {
		for _, content := range res.Content {
			if text, ok := content.(*mcp.TextContent); ok {
				a.Text += text.Text
			}
		}
	}
	refused, ok := mcplimit.RefusedOf(res, err)
	if !ok {
		a.Failed = err != nil || res.IsError
		return a
	}
	for reason := edge.Exceeded; reason <= edge.Misconfigured; reason++ {
		if reason.String() == refused.Reason {
			a.Reason = reason
		}
	}
	a.Limits = refused.Limits
	a.RetryAfter = time.Duration(refused.RetryAfterSeconds) * time.Second
	return a
}
