package daemon

import (
	"net/http"
)

// blockState is the answer to a block: for how long the key stays blocked, rounded up.
type blockState struct {
	Name         string `json:"name"`
	ResetAfterMS int64  `json:"reset_after_ms"`
}

func (a *api) block(w http.ResponseWriter, r *http.Request) {
	var body claimBody
	var ms *int64
	f := body.target()
	f["for_ms"] = value(&ms, `"for_ms" must be an integer.`)
	if !readFields(w, r, f) {
		return
	}
	b, key, p := a.budgets.target(&body, "The request", block)
	switch {
	case p != nil:
	case ms == nil || *ms < 1:
		p = invalid(`"for_ms" must be an integer of at least 1.`)
	case *ms > b.limit.Max:
		p = exceeds(`"for_ms"`, b.limit)
	}
	if p != nil {
		p.Write(w)
		return
	}
	res, err := b.server.Force(r.Context(), key, *ms)
	if err != nil {
		a.failClaims(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, blockState{b.limit.Name, ceilMS(res.ResetAfter)})
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
	if err := b.server.Reset(r.Context(), key); err != nil {
		a.failClaims(w, r, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
