package daemon

import (
	"context"
	"fmt"
	"net/http"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/driver"
)

func (a *api) commit(w http.ResponseWriter, r *http.Request) {
	rule := fmt.Sprintf(`"actual" must be a list of the units used, one integer from 0 to %d `+
		`for each claim, in digits only.`, driver.MaxUnits)
	var text *string
	var actual []int64
	f := fields{"token": value(&text, tokenRequired), "actual": unitList(&actual, rule)}
	if !readFields(w, r, f) {
		return
	}
	t, p := a.budgets.ticket(text)
	if p == nil && actual != nil && len(actual) != len(t.claims) {
		p = invalid(rule)
	}
	var used []ratelimit.Claim
	for i := 0; p == nil && i < len(actual); i++ {
		c := t.claims[i]
		switch {
		case c.Limiter == nil && actual[i] > 0:
			p = wrongKind(where(i) + " is on a block, which has no units: its actual must be 0.")
		case c.Limiter == nil || a.budgets.of(c).kind != rate:
		case c.N == 0 && actual[i] > 0:
			p = invalid(where(i) + " has reserved no units: its actual must be 0.")
		default:
			used = append(used, ratelimit.Claim{Limiter: c.Limiter, Key: c.Key, N: actual[i]})
		}
	}
	if p != nil {
		p.Write(w)
		return
	}
	a.settle(w, r, t, func(ctx context.Context) error { return t.CommitAll(ctx, used...) })
}

func (a *api) cancel(w http.ResponseWriter, r *http.Request) {
	if t, ok := a.readTicket(w, r); ok {
		a.settle(w, r, t, t.Cancel)
	}
}

// readTicket reads a request that has a token only, or answers what is wrong with it.
func (a *api) readTicket(w http.ResponseWriter, r *http.Request) (*ticket, bool) {
	var text *string
	if !readFields(w, r, fields{"token": value(&text, tokenRequired)}) {
		return nil, false
	}
	t, p := a.budgets.ticket(text)
	if p != nil {
		p.Write(w)
		return nil, false
	}
	return t, true
}

// settle settles a ticket. Only the first settlement that records units finds them held.
func (a *api) settle(
	w http.ResponseWriter, r *http.Request, t *ticket, settle func(context.Context) error,
) {
	if err := settle(r.Context()); err != nil {
		a.failSettlement(w, r, err, t.held)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
