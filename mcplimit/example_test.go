package mcplimit_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/mcplimit"
)

// A server whose tools have a limit for each session, and whose tool "ask" has a budget of tokens
// of its own, which counts what its answers have really cost.
func Example() {
	store, err := memorystore.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	calls, err := ratelimit.New(store, algorithm.SlidingLog(ratelimit.PerHour("calls", 2)))
	if err != nil {
		log.Fatal(err)
	}
	tokens, err := ratelimit.New(store,
		algorithm.Budget(algorithm.SlidingLog(ratelimit.PerDay("tokens", 1000))))
	if err != nil {
		log.Fatal(err)
	}

	server := mcp.NewServer(&mcp.Implementation{Name: "library", Version: "v1.0.0"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "find"}, answer("found"))
	mcp.AddTool(server, &mcp.Tool{Name: "ask"}, answer("a long answer"))
	limitCalls := mcplimit.Middleware(mcplimit.PerTool(calls, mcplimit.Session, nil))
	limitTokens := mcplimit.Middleware(
		// An answer costs 600 tokens at most.
		mcplimit.PerTool(tokens, mcplimit.Session, map[string]int64{"find": 0, "ask": 600}),
		mcplimit.WithCost(func(_ mcp.Request, res mcp.Result, err error) int64 {
			result, ok := res.(*mcp.CallToolResult)
			if err != nil || !ok || result.IsError {
				return 0
			}
			return int64(300 * len(strings.Fields(textOf(result))))
		}))
	server.AddReceivingMiddleware(limitTokens, limitCalls)

	session := connectTo(server)
	defer session.Close()
	for _, tool := range []string{"ask", "ask", "find", "find"} {
		result, err := session.CallTool(context.Background(), &mcp.CallToolParams{Name: tool})
		if err != nil {
			log.Fatal(err)
		}
		text, _, _ := strings.Cut(textOf(result), ".")
		fmt.Printf("%s: %s\n", tool, text)
	}
	// Output:
	// ask: a long answer
	// ask: Rate limit exceeded: tokens
	// find: found
	// find: Rate limit exceeded: calls
}

type none struct{}

func answer(text string) mcp.ToolHandlerFor[none, any] {
	return func(
		context.Context, *mcp.CallToolRequest, none,
	) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil, nil
	}
}

func textOf(result *mcp.CallToolResult) string {
	text, _ := result.Content[0].(*mcp.TextContent)
	return text.Text
}

// connectTo connects a client to a server of this process.
func connectTo(server *mcp.Server) *mcp.ClientSession {
	clientSide, serverSide := mcp.NewInMemoryTransports()
	if _, err := server.Connect(context.Background(), serverSide, nil); err != nil {
		log.Fatal(err)
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "model", Version: "v1.0.0"}, nil)
	session, err := client.Connect(context.Background(), clientSide, nil)
	if err != nil {
		log.Fatal(err)
	}
	return session
}
