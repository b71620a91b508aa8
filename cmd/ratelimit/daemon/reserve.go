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
		text, err = token(reserved, newID(), false)
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
		p = a.budgets.checkExtension(t, *text, n, rule)
	}
	if p != nil {
		p.Write(w)
		return
	}
	mark, err := a.budgets.mark(t.claims)
	if err != nil {
		a.fail(w, r, err, t.claims...)
		return
	}
	if settled, err := mark.Peek(r.Context(), t.id); err != nil {
		a.failClaims(w, r, err, t.claims...)
		return
	} else if !settled.Allowed {
		alreadySettled.Write(w)
		return
	}
	results, err := t.Extend(r.Context(), n...)
	var extended string
	if err == nil {
		extended, err = token(t, t.id, true)
	}
	if err != nil {
		a.failClaims(w, r, err, t.claims...)
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
	var asked []ratelimit.Result
	var states []*limitState
	for i, c := range claims {
		if n[i] > 0 {
			state := newLimitState(c.Limiter.Limits()[0], results[i])
			body.Limits[i] = &state
			asked, states = append(asked, results[i]), append(states, &state)
		}
	}
	binding := ratelimit.Binding(asked)
	if !asked[binding].Allowed {
		refuse(w, claims, results)
		return
	}
	body.limitState = *states[binding]
	writeJSON(w, http.StatusOK, body)
}

func (b *budgets) checkExtension(
	t *ticket, text string, n []int64, rule string,
) *problem.Problem {
	if len(n) != len(t.claims) || slices.Max(n) == 0 {
		return invalid(rule)
	}
	if len(text) > maxToken-roomToExtend {
		return tokenFull
	}
	for i, c := range t.claims {
		c.N = n[i]
		if p := b.checkUnits(i, c); p != nil {
			return p
		}
	}
	return nil
}
