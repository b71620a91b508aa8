package daemon

import (
	"fmt"
	"log/slog"
	"net/http"

	"github.com/truewindow/ratelimit"
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
	b, key, p := a.budgets.target("The request", &body, rate)
	if p == nil && (body.n == nil || *body.n < 1 || *body.n > driver.MaxUnits) {
		p = invalid(integerRule("n", 1, driver.MaxUnits))
	}
	if p != nil {
		p.Write(w)
		return
	}
	res, err := b.Force(r.Context(), key, *body.n)
	a.logWrite(r, "force", b.Limiter, key, err, slog.Int64("units", *body.n))
	if err != nil {
		a.fail(w, r, err, ratelimit.Claim{Limiter: b.Limiter})
		return
	}
	writeJSON(w, http.StatusOK, newLimitState(b.limit, res))
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
	b, key, p := a.budgets.target("The request", &body, block)
	switch {
	case p != nil:
	case ms == nil || *ms < 1:
		p = invalid(integerRule("for_ms", 1, driver.MaxUnits))
	case *ms > b.limit.Max:
		p = exceeds(`"for_ms"`, b.limit)
		p.Detail += fmt.Sprintf(" A key is blocked for at most %v.", b.limit.Window)
	}
	if p != nil {
		p.Write(w)
		return
	}
	res, err := b.strict.Force(r.Context(), key, *ms)
	a.logWrite(r, "block", b.Limiter, key, err, slog.String("for", milliseconds(ms).String()))
	if err != nil {
		a.fail(w, r, err, ratelimit.Claim{Limiter: b.Limiter})
		return
	}
	writeJSON(w, http.StatusOK,
		blockState{b.limit.Name, res.Source.String(), ceilMS(res.ResetAfter)})
}

// reset deletes what is recorded and held for the key under the limits of --limit, or under the
// limit that the request names, of any kind. No policy applies to it.
func (a *api) reset(w http.ResponseWriter, r *http.Request) {
	var body claimBody
	if !readFields(w, r, body.target()) {
		return
	}
	limiter := a.budgets.all
	p := checkKey(body.key)
	if p == nil && body.limit != nil {
		var b *budget
		if b, _, p = a.budgets.target("The request", &body, rate, inFlight, block); p == nil {
			limiter = b.Limiter
		}
	}
	if p == nil && limiter == nil {
		p = noLimitOfKey
	}
	if p != nil {
		p.Write(w)
		return
	}
	err := limiter.Reset(r.Context(), *body.key)
	a.logWrite(r, "reset", limiter, *body.key, err)
	if err != nil {
		a.fail(w, r, err, ratelimit.Claim{Limiter: limiter})
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
