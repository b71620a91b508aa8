package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"sync"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/httplimit"
	"github.com/truewindow/ratelimit/httplimit/headers"
	"github.com/truewindow/ratelimit/httplimit/problem"
)

// A plan says how many requests and tokens a tenant may use in any minute, and how many of its
// calls may be in flight.
type plan struct{ Requests, Tokens, Calls int64 }

// limits are the limiters of a plan. Those of all plans have the same names, so a tenant that
// changes to another plan keeps its history.
type limits struct{ requests, tokens, calls *ratelimit.Limiter }

type gateway struct {
	store  ratelimit.Store
	planOf func(ctx context.Context, tenant string) (plan, error)
	ask    model
	plans  sync.Map // the *limits of each plan that a tenant has had
}

// A model answers a prompt in parts. With each part it says how many tokens were used so far, those
// of the prompt included. What it returns is charged, even if it returns an error too.
type model func(
	ctx context.Context, prompt string, send func(part string, used int64) error,
) (used int64, err error)

func (g *gateway) limitsOf(p plan) (*limits, error) {
	if l, ok := g.plans.Load(p); ok {
		return l.(*limits), nil
	}
	requests, err1 := ratelimit.New(g.store,
		algorithm.SlidingLog(ratelimit.PerMinute("requests", p.Requests)))
	tokens, err2 := ratelimit.New(g.store,
		algorithm.Budget(algorithm.SlidingLog(ratelimit.PerMinute("tokens", p.Tokens))).
			ChargeTimeouts())
	calls, err3 := ratelimit.New(g.store, algorithm.InFlight("calls", p.Calls))
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	l, _ := g.plans.LoadOrStore(p, &limits{requests, tokens, calls})
	return l.(*limits), nil
}

// tokens estimates how many tokens a text has.
func tokens(text string) int64 { return int64(len(text)+3) / 4 }

// step is how many tokens are held for an answer at first, and then whenever it needs more.
const step = 500

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	prompt, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil {
		http.Error(w, "the prompt is too long", http.StatusRequestEntityTooLarge)
		return
	}
	c, err := g.reserve(r.Context(), r.Header.Get("X-Tenant"), tokens(string(prompt)))
	if err != nil {
		httplimit.Refuse(w, httplimit.Decision{Err: err})
		return
	}
	results := c.Results()
	headers.Write(w.Header(), headers.Draft11, headers.Item{Result: results[0]},
		headers.Item{Result: results[1], Unit: "tokens"},
		headers.Item{Result: results[2], Unit: headers.ConcurrentRequests})
	if !c.Allowed() {
		problem.SetRetryAfter(w.Header(), retryAfter(results))
		httplimit.Refuse(w, httplimit.Decision{Results: results})
		return
	}
	g.answer(w, r, c, string(prompt))
}

// A call is a reservation, under a limit of tokens of which so many are held.
type call struct {
	*ratelimit.Reservation
	held, most int64
}

// reserve holds what a call needs at first, or nothing if one of the limits refuses.
func (g *gateway) reserve(ctx context.Context, tenant string, prompt int64) (*call, error) {
	plan, err := g.planOf(ctx, tenant)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", httplimit.ErrUnattributed, err)
	}
	l, err := g.limitsOf(plan)
	if err != nil {
		return nil, err
	}
	most := l.tokens.Max()
	held := prompt + max(0, min(step, most-prompt)) // a prompt beyond the budget is an error
	r, err := ratelimit.ReserveAll(ctx,
		ratelimit.Claim{Limiter: l.requests, Key: tenant, N: 1}, // taken, not held
		ratelimit.Claim{Limiter: l.tokens, Key: tenant, N: held},
		ratelimit.Claim{Limiter: l.calls, Key: tenant, N: 1})
	return &call{r, held, most}, err
}

// retryAfter returns how long a client should wait. Most calls in flight end long before their
// holds time out, so they count as a second.
func retryAfter(results []ratelimit.Result) time.Duration {
	wait := time.Second
	for _, res := range results {
		if !res.Allowed && res.Limit.Name != "calls" {
			wait = max(wait, res.RetryAfter)
		}
	}
	return wait
}

// errUsedUp means that an answer was cut because the tokens of its tenant are used up.
var errUsedUp = errors.New("the tokens of this minute are used up")

// answer streams the answer of the model, and charges the tokens that it used.
func (g *gateway) answer(w http.ResponseWriter, r *http.Request, c *call, prompt string) {
	ctx := r.Context()
	// A call without a Commit costs no tokens. If Cancel fails, it is repeated in the background.
	defer func() { _ = c.Cancel(ctx) }()
	w.Header().Set("Content-Type", "text/event-stream")
	used, err := g.ask(ctx, prompt, func(part string, used int64) error {
		if err := c.hold(ctx, used); err != nil {
			return err
		}
		line, err := json.Marshal(part)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "data: %s\n\n", line); err != nil {
			return err
		}
		return http.NewResponseController(w).Flush()
	})
	switch {
	case err != nil && used == 0:
		http.Error(w, "the model does not answer", http.StatusBadGateway)
	case errors.Is(err, errUsedUp):
		fmt.Fprint(w, "event: cut\ndata: \"used up\"\n\n")
	case err != nil: // the client does not get its text
		fmt.Fprint(w, "event: cut\ndata: \"failed\"\n\n")
		log.Print("an answer was cut: ", err)
	}
	if used > 0 { // also if the answer was cut, or the client has disconnected
		if err := c.Commit(ctx, used); err != nil {
			log.Print("a call is not charged yet: ", err)
		}
	}
}

// hold makes sure that so many tokens are held.
func (c *call) hold(ctx context.Context, used int64) error {
	if used <= c.held {
		return nil
	}
	more := min(used+step, c.most) - c.held
	if more <= 0 {
		return errUsedUp
	}
	results, err := c.Extend(ctx, more)
	if err != nil {
		return err
	}
	if !results[0].Allowed {
		return errUsedUp
	}
	c.held += more
	return nil
}
