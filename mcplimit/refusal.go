package mcplimit

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/truewindow/ratelimit/edge"
)

// CodeRefused is the code of a [jsonrpc.Error] for a request that is not passed on, from the range
// that JSON-RPC leaves to servers.
const CodeRefused = -32029

// codeInternal is JSON-RPC's code of an internal error.
const codeInternal = -32603

// MetaKey is the key under which the Meta of a result has a [Refused].
const MetaKey = "io.github.truewindow/ratelimit"

// Refused is what a program reads about a request that was not passed on.
type Refused struct {
	// Reason is that of an [edge.Refusal], such as "exceeded".
	Reason string `json:"reason"`
	// Limits are the names of the limits that refuse.
	Limits []string `json:"limits,omitempty"`
	// RetryAfterSeconds is the time to wait, rounded up, or 0 if waiting does not help or it is not
	// known.
	RetryAfterSeconds int64 `json:"retryAfterSeconds,omitempty"`
}

// refused returns the answer to a request that is not passed on. cause is why it was not decided,
// or nil.
func (l *limits) refused(
	method string, req mcp.Request, r edge.Refusal, cause error,
) (mcp.Result, error) {
	refused := Refused{Reason: r.Reason.String()}
	for _, limit := range r.Limits {
		refused.Limits = append(refused.Limits, limit.Name)
	}
	if r.RetryAfter > 0 {
		wait := edge.Jitter(r.RetryAfter, time.Second, l.jitter)
		refused.RetryAfterSeconds = int64(math.Ceil(wait.Seconds()))
	}
	text := r.Status(0).Message
	switch seconds := refused.RetryAfterSeconds; seconds {
	case 0:
	case 1:
		text += ". Wait a second, then try again."
	default:
		text += fmt.Sprintf(". Wait %d seconds, then try again.", seconds)
	}
	if method == "tools/call" {
		res := newResult(req)
		res.Meta = mcp.Meta{MetaKey: refused}
		res.Content = []mcp.Content{&mcp.TextContent{Text: strings.ToUpper(text[:1]) + text[1:]}}
		res.SetError(cause)
		return res, nil
	}
	data, err := json.Marshal(refused)
	if err != nil {
		return nil, err
	}
	code := int64(CodeRefused)
	if r.Reason == edge.Misconfigured {
		code = codeInternal
	}
	return nil, &jsonrpc.Error{Code: code, Message: text, Data: data}
}

// complete is a result that says so, which those of the protocol from 2026-07-28 on must. The SDK
// sets this below its middlewares only, and exports no field for it.
const complete = `{"content":[],"resultType":"complete"}`

// newResult returns an empty result of a call of a tool.
func newResult(req mcp.Request) *mcp.CallToolResult {
	res := new(mcp.CallToolResult)
	session, ok := req.GetSession().(*mcp.ServerSession)
	if !ok || session == nil {
		return res
	}
	if init := session.InitializeParams(); init == nil || init.ProtocolVersion >= "2026-07-28" {
		if err := json.Unmarshal([]byte(complete), res); err != nil {
			return new(mcp.CallToolResult)
		}
	}
	return res
}

// RefusedOf returns why a request was not passed on, from what its caller gets: the result of a
// call of a tool, or an error. It returns false if no limit is the reason.
func RefusedOf(res mcp.Result, err error) (refused Refused, ok bool) {
	var coded *jsonrpc.Error
	if errors.As(err, &coded) && json.Unmarshal(coded.Data, &refused) == nil {
		return refused, refused.Reason != ""
	}
	called, ok := res.(*mcp.CallToolResult)
	if !ok || called == nil || !called.IsError {
		return Refused{}, false
	}
	// A client gets a map, and middleware in this process a Refused.
	data, err := json.Marshal(called.Meta[MetaKey])
	if err != nil || json.Unmarshal(data, &refused) != nil {
		return Refused{}, false
	}
	return refused, refused.Reason != ""
}
