package httpapi

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
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
	if p == nil && (body.n == nil || *body.n < 1 || *body.n > driver.MaxUnits) {
		p = invalid(integerRule("n", 1, driver.MaxUnits))
	}
	if p != nil {
		return answer{}, p
	}
	res, err := a.decider.Force(q, l.Name, *body.key, *body.n)
	a.audit.write(q, "force", []string{l.Name}, []string{*body.key}, err,
		slog.Int64("units", *body.n))
	if err != nil {
		return answer{}, a.failWrite(q, err, l.Name)
	}
	return answer{status: http.StatusOK, body: newLimitState(res.Limit, res)}, nil
}

// failWrite returns the problem of a query that has not changed what is recorded under limits.
func (a *API) failWrite(q *query, err error, limits ...string) *problem.Problem {
	if errors.Is(err, decision.ErrUnknownLimit) { // it was removed meanwhile
		return unknownLimit("The request")
	}
	return a.fail(q.path, err, func() []string { return limits })
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
	res, err := a.decider.Block(q, l.Name, *body.key, *ms)
	a.audit.write(q, "block", []string{l.Name}, []string{*body.key}, err,
		slog.String("for", milliseconds(ms).String()))
	if err != nil {
		return answer{}, a.failWrite(q, err, l.Name)
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
	if p != nil {
		return answer{}, p
	}
	err := a.decider.Reset(q, *body.key, limits...)
	a.audit.write(q, "reset", limits, []string{*body.key}, err)
	if err != nil {
		return answer{}, a.failWrite(q, err, limits...)
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
