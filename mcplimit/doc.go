// Package mcplimit limits the requests of servers and clients of the Model Context Protocol
// (github.com/modelcontextprotocol/go-sdk).
//
//	server := mcp.NewServer(&mcp.Implementation{Name: "search", Version: "v1.0.0"}, nil)
//	choose := mcplimit.PerTool(limiter, mcplimit.User, nil)
//	server.AddReceivingMiddleware(mcplimit.Middleware(choose))
//
// A [Choose] returns what a request costs: claims of one or more limiters, which are admitted
// together or not at all. A request whose claims are admitted is passed on, and so is one without
// claims. Notifications, ping, initialize and server/discover are never limited, since no session
// works without them.
//
// A call of a tool that is not passed on has an answer for the model: a result with IsError, whose
// text says which limit refuses and how many seconds to wait. Any other request fails with a
// [jsonrpc.Error] of the code [CodeRefused], or -32603 (internal error) if the limits are
// misconfigured. The session goes on. Both have a [Refused] for programs: the result under
// [MetaKey] of its Meta, and the error as its Data. No answer contains a key or the text of an
// error; an earlier middleware of a server finds the error of a call of a tool that was not decided
// by GetError of the result, to log it.
//
// Calls in flight ([github.com/truewindow/ratelimit/algorithm.InFlight]) are held until the request
// has been answered, also by a panic.
package mcplimit
