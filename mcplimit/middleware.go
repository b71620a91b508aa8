package mcplimit

import (
	"context"
	"errors"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/edge"
)

// An Option changes a default of [Middleware]. If an option other than [WithBlocks] is repeated,
// the last one applies.
type Option func(*limits)

// WithBlocks declares the limits with the given names to be blocks, such as those of
// [github.com/truewindow/ratelimit/algorithm.Block]. Repeated options add names.
func WithBlocks(names ...string) Option {
	return func(l *limits) {
		if l.blocks == nil {
			l.blocks = make(map[string]bool, len(names))
		}
		for _, name := range names {
			l.blocks[name] = true
		}
	}
}

// WithRetryJitter makes the wait that clients are told longer by a random number of seconds, up to
// share of it; see [edge.Jitter]. The default, 0, is the wait in whole seconds, rounded up.
// [Middleware] panics if share is not between 0 and 1.
func WithRetryJitter(share float64) Option { return func(l *limits) { l.jitter = share } }

// WithWait waits until a request is admitted, as [ratelimit.WaitAll] does. It is for clients: a
// server that waits lets the model wait, and holds a request.
func WithWait() Option { return func(l *limits) { l.wait = true } }

// WithCost sets how many units a request costs under its Budgets
// ([github.com/truewindow/ratelimit/algorithm.Budget]) when it has been answered, such as tokens or
// bytes of the result; 0 gives them all back. The N of its claims is held until then, so let it be
// the most that a request usually costs. cost gets what the handler has returned: an error that a
// tool returns is a result with IsError, and a panic is an error. A request for which cost panics
// or returns a negative number costs what it has held. A request without a claim on a Budget is
// misconfigured, unless all its claims are of calls in flight or of no units.
//
// cost must be safe for concurrent use.
func WithCost(cost func(req mcp.Request, res mcp.Result, err error) int64) Option {
	return func(l *limits) { l.cost = cost }
}

type limits struct {
	choose Choose
	blocks map[string]bool
	jitter float64
	wait   bool
	cost   func(mcp.Request, mcp.Result, error) int64
}

// Middleware limits the requests that a server receives (Server.AddReceivingMiddleware) or a client
// sends (Client.AddSendingMiddleware), as the package comment describes. It panics if choose is nil
// or an option is invalid.
func Middleware(choose Choose, opts ...Option) mcp.Middleware {
	l := &limits{choose: choose}
	for _, opt := range opts {
		opt(l)
	}
	switch {
	case choose == nil:
		panic("mcplimit: the Choose function is nil")
	case !edge.ValidJitter(l.jitter):
		panic("mcplimit: the share of WithRetryJitter is not between 0 and 1")
	}
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if exempt[method] || strings.HasPrefix(method, "notifications/") {
				return next(ctx, method, req)
			}
			return l.handle(ctx, method, req, next)
		}
	}
}

// exempt are the methods without which no session works.
var exempt = map[string]bool{"ping": true, "initialize": true, "server/discover": true}

func (l *limits) handle(
	ctx context.Context, method string, req mcp.Request, next mcp.MethodHandler,
) (res mcp.Result, err error) {
	claims, err := l.choose(ctx, method, req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return l.refused(method, req, edge.Refusal{Reason: edge.Unattributed}, err)
	}
	if len(claims) == 0 {
		return next(ctx, method, req)
	}
	var call edge.Call
	err = call.Decide(ctx, claims, edge.Options{Wait: l.wait, Settle: l.cost != nil})
	if err != nil || !call.Allowed() {
		refusal := call.Refusal(ctx, claims, err, l.blocks)
		if refusal.Reason == edge.Ended {
			return nil, ctx.Err()
		}
		return l.refused(method, req, refusal, err)
	}
	if !call.Settles() {
		return next(with(ctx, call.Results), method, req)
	}
	res, err = nil, errPanicked // unless next returns
	defer func() {
		cost := int64(-1)                          // what is held
		defer func() { call.SettleN(ctx, cost) }() // also if l.cost panics
		if l.cost != nil {
			cost = l.cost(req, res, err)
		}
	}()
	res, err = next(with(ctx, call.Results), method, req)
	return res, err
}

var errPanicked = errors.New("mcplimit: the handler has panicked")

type resultsKey struct{}

func with(ctx context.Context, results []ratelimit.Result) context.Context {
	return context.WithValue(ctx, resultsKey{}, results)
}

// FromContext returns the result of each limit of a request from the context that its handler gets:
// first those of the first claim, in the order of its limiter's Limits. It is nil if the request
// was not limited. Do not change it.
func FromContext(ctx context.Context) []ratelimit.Result {
	results, _ := ctx.Value(resultsKey{}).([]ratelimit.Result)
	return results
}
