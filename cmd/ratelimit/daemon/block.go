package daemon

import (
	"net/http"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/driver"
)

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
	b, key, p := a.budgets.target(&body, "The request", block)
	switch {
	case p != nil:
	case ms == nil || *ms < 1:
		p = invalid(integerRule("for_ms", 1, driver.MaxUnits))
	case *ms > b.limit.Max:
		p = exceeds(`"for_ms"`, b.limit)
	}
	if p != nil {
		p.Write(w)
		return
	}
	res, err := b.strict.Force(r.Context(), key, *ms)
	if err != nil {
		a.failClaims(w, r, err, ratelimit.Claim{Limiter: b.Limiter})
		return
	}
	writeJSON(w, http.StatusOK,
		blockState{b.limit.Name, res.Source.String(), ceilMS(res.ResetAfter)})
}

func (a *api) unblock(w http.ResponseWriter, r *http.Request) {
	var body claimBody
	if !readFields(w, r, body.target()) {
		return
	}
	b, key, p := a.budgets.target(&body, "The request", block)
	if p != nil {
		p.Write(w)
		return
	}
	if err := b.strict.Reset(r.Context(), key); err != nil {
		a.failClaims(w, r, err, ratelimit.Claim{Limiter: b.Limiter})
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
