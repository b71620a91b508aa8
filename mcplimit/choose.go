package mcplimit

import (
	"context"
	"errors"
	"maps"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/truewindow/ratelimit"
)

// A Choose returns the claims of a request: which limiters, for which keys, and how many units.
// They are admitted together or not at all, as by [ratelimit.AllowAll]. A request without claims is
// not limited. An error, or a claim with an empty key, means that the request cannot be attributed;
// the client does not get the text of the error. The method is such as "tools/call"; [ToolOf] has
// the name of the tool. A Choose must be safe for concurrent use.
type Choose func(ctx context.Context, method string, req mcp.Request) ([]ratelimit.Claim, error)

// PerTool returns a Choose for calls of tools. Each takes as many units of limiter as costs says
// for the tool, or one; a cost of 0 is not limited. It panics if limiter or key is nil.
func PerTool(limiter *ratelimit.Limiter, key KeyFunc, costs map[string]int64) Choose {
	switch {
	case limiter == nil:
		panic("mcplimit: the limiter is nil")
	case key == nil:
		panic("mcplimit: the key function is nil")
	}
	costs = maps.Clone(costs)
	return func(ctx context.Context, _ string, req mcp.Request) ([]ratelimit.Claim, error) {
		tool, ok := ToolOf(req)
		n, known := costs[tool]
		if !known {
			n = 1
		}
		if !ok || n == 0 {
			return nil, nil
		}
		k, err := key(ctx, req)
		if err != nil {
			return nil, err
		}
		return []ratelimit.Claim{{Limiter: limiter, Key: k, N: n}}, nil
	}
}

// ToolOf returns the name of the tool that a request calls, or false if it calls none.
func ToolOf(req mcp.Request) (name string, ok bool) {
	switch params := req.GetParams().(type) {
	case *mcp.CallToolParamsRaw: // on a server
		return params.Name, true
	case *mcp.CallToolParams: // on a client
		return params.Name, true
	}
	return "", false
}

// A KeyFunc returns the key of a request, such as the user that sent it. An error or an empty key
// means that the request cannot be attributed; the client does not get the text of the error. A
// KeyFunc must be safe for concurrent use.
type KeyFunc func(ctx context.Context, req mcp.Request) (string, error)

var (
	errNoUser    = errors.New("mcplimit: the request has no verified token with a user")
	errNoSession = errors.New("mcplimit: the request has no session")
)

// User is a KeyFunc for servers whose key is the user of the token that package auth of the SDK has
// verified. A request without such a user cannot be attributed.
func User(ctx context.Context, req mcp.Request) (string, error) {
	info := auth.TokenInfoFromContext(ctx)
	if extra := req.GetExtra(); info == nil && extra != nil {
		info = extra.TokenInfo
	}
	if info == nil || info.UserID == "" {
		return "", errNoUser
	}
	return info.UserID, nil
}

// Session is a KeyFunc for servers whose key is the session, or "stdio" on standard input and
// output, which has one. A client over HTTP can open any number of sessions, so limit it by [User]
// too. A request over HTTP without a session, as all of a stateless server are, cannot be
// attributed.
func Session(_ context.Context, req mcp.Request) (string, error) {
	session := req.GetSession()
	if session == nil {
		return "", errNoSession
	}
	if id := session.ID(); id != "" {
		return id, nil
	}
	if extra := req.GetExtra(); extra != nil && extra.Header != nil {
		return "", errNoSession
	}
	return "stdio", nil
}
