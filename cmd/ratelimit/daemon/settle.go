package daemon

import (
	"context"
	"errors"
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
	for i := 0; p == nil && i < len(actual); i++ {
		if actual[i] > 0 && a.budgets.of(t.claims[i]).kind == block {
			p = wrongKind(where(i) + " is on a block, which has no units: its actual must be 0.")
		}
	}
	if p != nil {
		p.Write(w)
		return
	}
	a.settle(w, r, t, func(ctx context.Context) error { return t.Commit(ctx, actual...) })
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

// settle settles a ticket once: the first request sets a mark in the store, and later ones find it
// and change nothing.
func (a *api) settle(
	w http.ResponseWriter, r *http.Request, t *ticket, settle func(context.Context) error,
) {
	ctx := r.Context()
	mark, err := a.budgets.mark(t.claims)
	if err != nil {
		a.fail(w, r, err, t.claims...)
		return
	}
	first, err := mark.Allow(ctx, t.id)
	if err != nil {
		a.failSettlement(w, r, err, t.claims)
		return
	}
	if !first.Allowed {
		alreadySettled.Write(w)
		return
	}
	if err := settle(ctx); err != nil {
		a.failSettlement(w, r, unmark(ctx, mark, t, err), t.claims)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// unmark removes the mark of a settlement that failed with err and recorded nothing, so that the
// token can be sent again. If the settlement may have been recorded, it leaves the mark and returns
// an error that wraps ErrOutcomeUnknown: a second settlement could give back units that were used.
// Settling an extended reservation takes several calls, some of which may have been recorded.
func unmark(ctx context.Context, mark *ratelimit.Limiter, t *ticket, err error) error {
	if errors.Is(err, ratelimit.ErrOutcomeUnknown) {
		return err
	}
	if !t.extended {
		if mark.Reset(ctx, t.id) == nil {
			return err
		}
	}
	return fmt.Errorf("%w: %w", ratelimit.ErrOutcomeUnknown, err)
}
