package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
	"github.com/truewindow/ratelimit/driver"
)

// force records units whether they fit or not.
func (a *api) force(w http.ResponseWriter, r *http.Request) {
	var body claimBody
	f := body.target()
	f["n"] = integer(&body.n, "n", 1, driver.MaxUnits)
	if !readFields(w, r, f) {
		return
	}
	l, p := a.target("The request", &body, rate)
	if p == nil && (body.n == nil || *body.n < 1 || *body.n > driver.MaxUnits) {
		p = invalid(integerRule("n", 1, driver.MaxUnits))
	}
	if p != nil {
		p.Write(w)
		return
	}
	res, err := a.decider.Force(r.Context(), l.Name, *body.key, *body.n)
	a.trace.write(r, "force", []string{l.Name}, []string{*body.key}, err,
		slog.Int64("units", *body.n))
	if err != nil {
		a.failWrite(w, r, err, l.Name)
		return
	}
	writeJSON(w, http.StatusOK, newLimitState(res.Limit, res))
}

// failWrite answers a request that has not changed what is recorded under limits.
func (a *api) failWrite(w http.ResponseWriter, r *http.Request, err error, limits ...string) {
	if errors.Is(err, decision.ErrUnknownLimit) { // it was removed meanwhile
		unknownLimit("The request").Write(w)
		return
	}
	a.fail(w, r, err, func() []string { return limits })
}

// blockState is the answer to a block: where it was recorded, and for how long the key stays
// blocked, rounded up.
type blockState struct {
	Name         string `json:"name"`
	Source       string `json:"source"`
	ResetAfterMS int64  `json:"reset_after_ms"`
}

func (a *api) block(w http.ResponseWriter, r *http.Request) {
	var body claimBody
	var ms *int64
	f := body.target()
	f["for_ms"] = integer(&ms, "for_ms", 1, driver.MaxUnits)
	if !readFields(w, r, f) {
		return
	}
	l, p := a.target("The request", &body, block)
	switch {
	case p != nil:
	case ms == nil || *ms < 1:
		p = invalid(integerRule("for_ms", 1, driver.MaxUnits))
	case *ms > l.Rate.Window.Milliseconds():
		longest := algorithm.Blocking(l.Name, l.Rate.Window).Limit()
		p = exceeds(`"for_ms"`, longest)
		p.Detail += fmt.Sprintf(" A key is blocked for at most %v.", longest.Window)
	}
	if p != nil {
		p.Write(w)
		return
	}
	res, err := a.decider.Block(r.Context(), l.Name, *body.key, *ms)
	a.trace.write(r, "block", []string{l.Name}, []string{*body.key}, err,
		slog.String("for", milliseconds(ms).String()))
	if err != nil {
		a.failWrite(w, r, err, l.Name)
		return
	}
	writeJSON(w, http.StatusOK,
		blockState{l.Name, res.Source.String(), ceilMS(res.ResetAfter)})
}

// reset deletes what is recorded and held for the key under the limits of --limit, or under the
// limit that the request names, of any kind. No policy applies to it.
func (a *api) reset(w http.ResponseWriter, r *http.Request) {
	var body claimBody
	if !readFields(w, r, body.target()) {
		return
	}
	p := checkKey(body.key)
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
		p.Write(w)
		return
	}
	err := a.decider.Reset(r.Context(), *body.key, limits...)
	a.trace.write(r, "reset", limits, []string{*body.key}, err)
	if err != nil {
		a.failWrite(w, r, err, limits...)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// ofKeys returns the names of the limits that record units under the key of a request: those of
// --limit, and of a file those with the key [key].
func (a *api) ofKeys() (names []string) {
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
