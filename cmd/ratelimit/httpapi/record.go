package httpapi

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/cmd/ratelimit/audit"
	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/httplimit/problem"
)

// force records units whether they fit or not.
func (a *API) force(q *query) (answer, *problem.Problem) {
	var body claimBody
	f := body.target()
	f["n"] = integer(&body.n, "n", 1, driver.MaxUnits)
	if p := f.parse(q.body); p != nil {
		return answer{}, p
	}
	l, p := a.target("The request", &body, rate)
	if p == nil {
		p = q.mayUse(*body.key, l.Name)
	}
	if p == nil && (body.n == nil || *body.n < 1 || *body.n > driver.MaxUnits) {
		p = invalid(integerRule("n", 1, driver.MaxUnits))
	}
	if p != nil {
		return answer{}, p
	}
	change := audit.Change{Limit: l.Name, Key: *body.key, Units: body.n}
	w := a.audit.Begin(q, q.event("force", change))
	res, err := a.decider.Force(q, l.Name, *body.key, *body.n)
	if p := a.wrote(q, w, http.StatusOK, &res, err); p != nil {
		return answer{}, p
	}
	return answer{status: http.StatusOK, body: newLimitState(res.Limit, res)}, nil
}

// wrote ends a write that is answered with a status, or with the problem that it returns. res is
// what the limit has of the key then, if it is known.
func (a *API) wrote(
	q *query, w *Write, status int, res *ratelimit.Result, err error,
) (p *problem.Problem) {
	switch {
	case errors.Is(err, decision.ErrUnknownLimit): // it was removed meanwhile
		p = unknownLimit("The request")
	case err != nil:
		p = a.fail(q.path, err, w.event.Limits)
	case res != nil:
		w.event.Changes[0].After = audit.StateOf(*res)
	}
	if p != nil {
		status = p.Status
	}
	w.End(q, status, err)
	return p
}

// blockState is the answer to a block: where it was recorded, and for how long the key stays
// blocked, rounded up.
type blockState struct {
	Name         string `json:"name"`
	Source       string `json:"source"`
	ResetAfterMS int64  `json:"reset_after_ms"`
}

func (a *API) block(q *query) (answer, *problem.Problem) {
	var body claimBody
	var ms *int64
	f := body.target()
	f["for_ms"] = integer(&ms, "for_ms", 1, driver.MaxUnits)
	if p := f.parse(q.body); p != nil {
		return answer{}, p
	}
	l, p := a.target("The request", &body, block)
	if p == nil {
		p = q.mayUse(*body.key, l.Name)
	}
	var longest time.Duration
	if p == nil {
		longest = l.Rate.Window
		if v := a.decider.Set().OfKey(l.Name, *body.key); v != nil {
			longest = v.Rate.Window
		}
	}
	switch {
	case p != nil:
	case ms == nil || *ms < 1:
		p = invalid(integerRule("for_ms", 1, driver.MaxUnits))
	case *ms > longest.Milliseconds():
		p = exceeds(`"for_ms"`, algorithm.Blocking(l.Name, longest).Limit())
		p.Detail += fmt.Sprintf(" A key is blocked for at most %v.", longest)
	}
	if p != nil {
		return answer{}, p
	}
	w := a.audit.Begin(q, q.event("block",
		audit.Change{Limit: l.Name, Key: *body.key, ForMS: ms}))
	res, err := a.decider.Block(q, l.Name, *body.key, *ms)
	if p := a.wrote(q, w, http.StatusOK, &res, err); p != nil {
		return answer{}, p
	}
	state := blockState{l.Name, res.Source.String(), ceilMS(res.ResetAfter)}
	return answer{status: http.StatusOK, body: state}, nil
}

// reset deletes what is recorded and held for the key under the limits of --limit, or under the
// limit that the request names, of any kind. No policy applies to it.
func (a *API) reset(q *query) (answer, *problem.Problem) {
	var body claimBody
	p := body.target().parse(q.body)
	if p == nil {
		p = checkKey(body.key)
	}
	var limits []string
	if body.limit != nil && p == nil {
		_, p = a.target("The request", &body)
		limits = []string{*body.limit}
	} else if p == nil {
		limits = a.ofKeys()
		if len(limits) == 0 {
			p = noLimitOfKey
		}
	}
	if p == nil {
		p = q.mayUse(*body.key, limits...)
	}
	if p != nil {
		return answer{}, p
	}
	var changes []audit.Change
	for _, limit := range limits {
		changes = append(changes, audit.Change{Limit: limit, Key: *body.key})
	}
	w := a.audit.Begin(q, q.event("reset", changes...))
	err := a.decider.Reset(q, *body.key, limits...)
	if p := a.wrote(q, w, http.StatusNoContent, nil, err); p != nil {
		return answer{}, p
	}
	return answer{status: http.StatusNoContent}, nil
}

// ofKeys returns the names of the limits that record units under the key of a request: those of
// --limit, and of a file those with the key [key].
func (a *API) ofKeys() (names []string) {
	set := a.decider.Set()
	if set == nil {
		return nil
	}
	for _, l := range set.Limits() {
		if kindOf(l) == rate && !l.ByName && slices.Equal(l.Key, []string{"key"}) &&
			set.OfKey(l.Name, "") != nil {
			names = append(names, l.Name)
		}
	}
	return names
}
