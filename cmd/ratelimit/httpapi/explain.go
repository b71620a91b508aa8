package httpapi

import (
	"context"
	"net/http"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/cmd/ratelimit/access"
	"github.com/truewindow/ratelimit/cmd/ratelimit/algorithms"
	"github.com/truewindow/ratelimit/cmd/ratelimit/config"
	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
	"github.com/truewindow/ratelimit/cmd/ratelimit/inspect"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
	"github.com/truewindow/ratelimit/httplimit/problem"
)

// explain answers which limits apply to a descriptor and what is left of them, and why others do
// not apply. It takes nothing.
func (a *API) explain(q *query) (answer, *problem.Problem) {
	var d rules.Descriptor
	var domain *string
	p := fields{"descriptor": entriesField("descriptor", &d),
		"domain": value(&domain, text(`"domain" must be a string.`))}.parse(q.body)
	if p == nil && d == nil {
		p = invalid(`The request has no "descriptor".`)
	}
	if p != nil {
		return answer{}, p
	}
	if domain == nil {
		domain = new(string)
	}
	c := a.config()
	if c == nil {
		c = &config.Config{Set: a.decider.Set()}
	}
	e := inspect.Of(c, *domain, d)
	e.Only(access.From(q).Only())
	states := a.states(q, *domain, d)
	for i := range e.Applies {
		applied := &e.Applies[i]
		applied.State, applied.KeyHash = states[applied.Limit], a.audit.Hash(applied.Key)
	}
	return answer{status: http.StatusOK, body: e}, nil
}

// states returns the states of the limits that apply to a descriptor, by their names. Without an
// answer of the store there are none.
func (a *API) states(
	ctx context.Context, domain string, d rules.Descriptor,
) map[string]*inspect.State {
	peeked, err := a.decider.Decide(ctx, []decision.Request{{Domain: domain, Descriptor: d}},
		decision.Options{Peek: true})
	if err != nil {
		return nil
	}
	states := make(map[string]*inspect.State)
	for _, s := range peeked.Parts[0].Statuses {
		if s.Asked && s.Result.Source != ratelimit.SourceOpen {
			states[s.Limit.Name] = &inspect.State{Limit: s.Result.Limit.Max,
				Remaining: s.Result.Remaining, RetryAfterMS: ceilMS(s.Result.RetryAfter),
				Block: s.Limit.Algorithm == algorithms.Block}
		}
	}
	return states
}
