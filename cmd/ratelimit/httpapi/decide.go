package httpapi

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/cmd/ratelimit/access"
	"github.com/truewindow/ratelimit/cmd/ratelimit/algorithms"
	"github.com/truewindow/ratelimit/cmd/ratelimit/audit"
	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/httplimit/problem"
)

// maxWait is how long a request may wait for units to hold, in ms.
const maxWait = 5000

// decide takes the units of all claims or descriptors, or none. With hold_ms it holds them.
func (a *API) decide(q *query) (answer, *problem.Problem) {
	var hold, wait *int64
	d, p := a.readDemand(q, fields{
		"hold_ms": holdField(&hold), "wait_ms": integer(&wait, "wait_ms", 0, maxWait)})
	if p != nil {
		return answer{}, p
	}
	opts, p := holdOptions(hold, wait)
	if p == nil && hold != nil && len(d.requests) > maxClaims {
		p = tooManyClaims
	}
	if p != nil {
		return answer{}, p
	}
	opts.Client, opts.Stop, opts.MostHeld = q.client, a.ready.Draining(), maxClaims
	return a.decideDemand(q, &d, opts)
}

// peek answers what decide would, and takes nothing.
func (a *API) peek(q *query) (answer, *problem.Problem) {
	d, p := a.readDemand(q, fields{})
	if p != nil {
		return answer{}, p
	}
	return a.decideDemand(q, &d, decision.Options{Peek: true})
}

// decideDemand decides a demand.
func (a *API) decideDemand(
	q *query, d *demand, opts decision.Options,
) (answer, *problem.Problem) {
	refused := http.StatusTooManyRequests
	if opts.Peek {
		refused = http.StatusOK
	}
	opts.Together = d.requests[0].Limit != "" // as whoever names limits expects
	opts.MayUse = access.From(q).Only()
	decided, err := a.decider.Decide(q, d.requests, opts)
	switch {
	case errors.Is(err, decision.ErrTooManyHeld):
		return answer{}, tooManyClaims
	case errors.Is(err, decision.ErrNotAllowed):
		return answer{}, q.forbid(notAllowed(err, d.requests)...)
	case err != nil:
		return answer{}, a.failDecision(q.path, err, d)
	}
	return decidedAnswer(refused, &decided), nil
}

// notAllowed returns what requests wanted of a limit that the caller may not use.
func notAllowed(err error, requests []decision.Request) []audit.Change {
	wrong := (*decision.RequestError)(nil)
	if !errors.As(err, &wrong) {
		return nil
	}
	return []audit.Change{{Limit: wrong.Limit.Name, Key: requests[wrong.Request].Key}}
}

func holdField(dst **int64) field { return integer(dst, "hold_ms", 0, driver.MaxUnits) }

// milliseconds returns ms as a duration; nil is 0.
func milliseconds(ms *int64) time.Duration {
	return time.Duration(unitsOr(ms, 0)) * time.Millisecond
}

// holdOptions returns the options of hold_ms and wait_ms.
func holdOptions(hold, wait *int64) (decision.Options, *problem.Problem) {
	opts := decision.Options{Wait: milliseconds(wait)}
	if hold != nil {
		d := milliseconds(hold)
		opts.Hold = &d
	}
	switch {
	case wait != nil && (*wait < 0 || *wait > maxWait):
		return opts, invalid(integerRule("wait_ms", 0, maxWait))
	case wait != nil && hold == nil:
		return opts, invalid(`"wait_ms" needs "hold_ms".`)
	}
	return opts, checkHold(hold)
}

func checkHold(hold *int64) *problem.Problem {
	if hold != nil && (*hold < 0 || *hold > driver.MaxUnits) {
		return invalid(integerRule("hold_ms", 0, driver.MaxUnits))
	}
	return nil
}

// holdRange is the answer to a hold_ms that is too short or too long for a limit.
func holdRange(limit string, holder driver.Algorithm) *problem.Problem {
	least, longest := decision.HoldRange(holder)
	return unprocessable(driverDocs+"ErrInvalid", "Hold too short or too long",
		fmt.Sprintf(`"hold_ms" must be 0, or from %v to %v for the limit %q.`,
			least, longest, limit))
}

// failDecision returns the problem of a demand that is not decided.
func (a *API) failDecision(path string, err error, d *demand) *problem.Problem {
	if wrong := (*decision.RequestError)(nil); errors.As(err, &wrong) {
		if p := d.problem(wrong); p != nil {
			return p
		}
	}
	if errors.Is(err, ratelimit.ErrInvalid) {
		// It names limits and no keys.
		return unprocessable(driverDocs+"ErrInvalid", "Invalid request", err.Error())
	}
	return a.fail(path, err, func() []string { return a.limitsOf(d.requests) })
}

// limitsOf returns the names of the limits that apply to requests, each once.
func (a *API) limitsOf(requests []decision.Request) (names []string) {
	add := func(name string) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	set := a.decider.Set()
	if set == nil {
		return nil
	}
	for _, r := range requests {
		if r.Limit != "" {
			add(r.Limit)
			continue
		}
		for _, m := range set.Match(nil, r.Domain, r.Descriptor) {
			add(m.Limit.Name)
		}
	}
	return names
}

// decidedBody is the answer to a decision: the state of the limit that binds, with whether all
// admit, and that of each limit that applies.
type decidedBody struct {
	ID string `json:"id,omitempty"`
	LimitState
	Limits []LimitState `json:"limits"`
}

// unboundBody is the answer to a decision without an enforced limit.
type unboundBody struct {
	Allowed bool         `json:"allowed"`
	Limits  []LimitState `json:"limits"`
}

// decidedAnswer answers with 200, or with the status of a refusal.
func decidedAnswer(refused int, d *decision.Decision) answer {
	all := []LimitState{}
	var results []ratelimit.Result // of enforced limits
	var states []LimitState
	for _, part := range d.Parts {
		for i := range part.Statuses {
			s := &part.Statuses[i]
			state := newLimitState(s.Result.Limit, s.Result)
			state.Allowed, state.Shadow, state.Never, state.Warned =
				s.Allowed, s.Shadow, s.Never, s.Warned
			state.Block = s.Limit.Algorithm == algorithms.Block
			if !s.Asked {
				state.Source = "none"
			}
			if !s.Asked && !s.Rate.Unlimited {
				state.Counts = nil
			}
			all = append(all, state)
			if !s.Shadow {
				results, states = append(results, s.Result), append(states, state)
			}
		}
	}
	if len(results) == 0 {
		return answer{status: http.StatusOK, body: unboundBody{d.Allowed, all}}
	}
	binding := slices.IndexFunc(states, func(s LimitState) bool { return s.Never })
	if binding < 0 {
		binding = ratelimit.Binding(results)
	}
	body := decidedBody{d.ID, states[binding], all}
	body.Allowed = d.Allowed
	answered := answer{status: http.StatusOK, body: body}
	if !d.Allowed {
		answered.status = refused
		if !body.Never && refused != http.StatusOK {
			answered.retryAfter = max(1, results[binding].RetryAfter)
		}
	}
	return answered
}
