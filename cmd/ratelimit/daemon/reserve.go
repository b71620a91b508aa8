package daemon

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/httplimit/problem"
)

func (a *api) reserve(w http.ResponseWriter, r *http.Request) {
	claims, ok := a.readClaims(w, r)
	if !ok {
		return
	}
	reserved, err := ratelimit.ReserveAll(r.Context(), claims...)
	var text string
	if err == nil && reserved.Allowed() {
		if text, err = a.budgets.token(r.Context(), reserved, claims); err != nil {
			_ = reserved.Cancel(r.Context())
		}
	}
	if err != nil {
		a.failClaims(w, r, err, claims...)
		return
	}
	writeClaims(w, claims, reserved.Results(), text)
}

func (a *api) extend(w http.ResponseWriter, r *http.Request) {
	rule := fmt.Sprintf(`"n" must be a list of units, one integer from 0 to %d for each claim, `+
		`in digits only, and not all of them 0.`, driver.MaxUnits)
	var text *string
	var n []int64
	f := fields{"token": value(&text, tokenRequired), "n": unitList(&n, rule)}
	if !readFields(w, r, f) {
		return
	}
	t, p := a.budgets.ticket(text)
	if p == nil {
		p = a.budgets.checkExtension(t, n, rule)
	}
	if p != nil {
		p.Write(w)
		return
	}
	ctx := r.Context()
	if _, err := t.Token(ctx, 0); err != nil { // it renews, if anything is held
		a.failSettlement(w, r, err, t.held)
		return
	}
	t, p = a.budgets.ticket(text)
	if p != nil {
		p.Write(w)
		return
	}
	var more []ratelimit.Claim
	for i, c := range t.claims {
		if n[i] > 0 {
			more = append(more, ratelimit.Claim{Limiter: c.Limiter, Key: c.Key, N: n[i]})
			t.claims[i].N += n[i]
		}
	}
	results, err := t.ExtendAll(ctx, more...)
	var extended string
	if err == nil && results[ratelimit.Binding(results)].Allowed {
		extended, err = a.budgets.token(ctx, t.Reservation, t.claims)
	}
	if err != nil {
		a.failClaims(w, r, err, t.held...)
		return
	}
	writeExtension(w, t.claims, n, results, extended)
}

// extension is the answer to an extension: the limit that binds, and in Limits one for each claim,
// or null for a claim that is not extended.
type extension struct {
	Token string `json:"token"`
	limitState
	Limits []*limitState `json:"limits"`
}

func writeExtension(
	w http.ResponseWriter, claims []ratelimit.Claim, n []int64, results []ratelimit.Result,
	token string,
) {
	body := extension{Token: token, Limits: make([]*limitState, len(claims))}
	binding := ratelimit.Binding(results)
	all := make([]ratelimit.Result, len(claims)) // with those that were not asked
	for i, c := range claims {
		all[i].Allowed = true
		if n[i] == 0 {
			continue
		}
		all[i] = results[0]
		results = results[1:]
		state := newLimitState(c.Limiter.Limits()[0], all[i])
		body.Limits[i] = &state
		if binding == 0 {
			body.limitState = state
		}
		binding--
	}
	if !body.Allowed {
		refuse(w, claims, all)
		return
	}
	writeJSON(w, http.StatusOK, body)
}

func (b *budgets) checkExtension(t *ticket, n []int64, rule string) *problem.Problem {
	if len(n) != len(t.claims) || slices.Max(n) == 0 {
		return invalid(rule)
	}
	for i, c := range t.claims {
		switch {
		case n[i] == 0:
		case c.Limiter == nil || b.of(c).kind != rate:
			return wrongKind(where(i) + " was not set by --limit: its n must be 0.")
		case c.N+n[i] > b.of(c).limit.Max:
			return exceeds(where(i), b.of(c).limit)
		}
	}
	return nil
}
