package daemon

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/internal/problem"
)

// A ticket is a reservation with what the daemon adds to its token: an identity, by which no two
// requests settle it, and whether it was extended.
type ticket struct {
	*ratelimit.Reservation
	id       string // base64 of random bytes
	extended bool
	claims   []ratelimit.Claim
}

// Forms of a token: one of these letters, the identity, a dot, and the token of the reservation.
const (
	reservedToken = "r"
	extendedToken = "e"

	idBytes       = 16
	roomToExtend  = 1 << 10 // bytes that an extension adds to a token at most
	tokenRequired = `"token" must be the string that a request was answered with.`
)

var idEncoding = base64.RawURLEncoding

// newID returns the identity of a new reservation.
func newID() string {
	var id [idBytes]byte
	_, _ = rand.Read(id[:]) // it never fails
	return idEncoding.EncodeToString(id[:])
}

// tokener is a reservation or a lease.
type tokener interface{ Token() (string, error) }

// token returns the text of a ticket.
func token(t tokener, id string, extended bool) (string, error) {
	text, err := t.Token()
	form := reservedToken
	if extended {
		form = extendedToken
	}
	return form + id + "." + text, err
}

// ticket returns the ticket of a token.
func (b *budgets) ticket(text *string) (*ticket, *problem.Problem) {
	if text == nil {
		return nil, invalid(tokenRequired)
	}
	head, rest, ok := strings.Cut(*text, ".")
	if !ok || len(*text) > maxToken || len(head) != 1+idEncoding.EncodedLen(idBytes) ||
		strings.ContainsAny(*text, "\r\n") { // base64 skips them
		return nil, invalidToken
	}
	form, id := head[:1], head[1:]
	if _, err := idEncoding.DecodeString(id); err != nil ||
		form != reservedToken && form != extendedToken {
		return nil, invalidToken
	}
	var limiters []*ratelimit.Limiter
	if b != nil {
		limiters = b.limiters
	}
	r, err := ratelimit.Resume(rest, limiters...)
	switch {
	case errors.Is(err, ratelimit.ErrUnknownLimit):
		return nil, unknownToken
	case err != nil:
		return nil, invalidToken
	}
	return &ticket{r, id, form == extendedToken, r.Claims()}, nil
}

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
		a.failClaims(w, r, err)
		return
	}
	a.writeClaims(w, claims, reserved.Results(), text)
}

func (a *api) extend(w http.ResponseWriter, r *http.Request) {
	const rule = `"n" must be a list of units, one integer of at least 0 for each claim.`
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
		a.fail(w, r, err)
		return
	}
	if settled, err := mark.Peek(r.Context(), t.id); err != nil {
		a.failClaims(w, r, err)
		return
	} else if !settled.Allowed {
		alreadySettled.Write(w)
		return
	}
	results, err := t.ExtendEach(r.Context(), n...)
	var extended string
	if err == nil {
		extended, err = token(t, t.id, true)
	}
	if err != nil {
		a.failClaims(w, r, err)
		return
	}
	a.writeClaims(w, t.claims, results, extended)
}

func (b *budgets) checkExtension(
	t *ticket, text string, n []int64, rule string,
) *problem.Problem {
	if len(n) != len(t.claims) {
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

func (a *api) commit(w http.ResponseWriter, r *http.Request) {
	const rule = `"actual" must be a list of the units used, one integer of at least 0 for each claim.`
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
			p = wrongKind(where(i) + " is of a block, which has no units: its actual is 0.")
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

// settle settles a ticket once: the first request leaves a mark in the store, and those that find
// it change nothing. It does not end when the client leaves.
func (a *api) settle(
	w http.ResponseWriter, r *http.Request, t *ticket, settle func(context.Context) error,
) {
	ctx := context.WithoutCancel(r.Context())
	mark, err := a.budgets.mark(t.claims)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	first, err := mark.Allow(ctx, t.id)
	if err != nil {
		a.failSettlement(w, r, err)
		return
	}
	if !first.Allowed {
		alreadySettled.Write(w)
		return
	}
	if err := settle(ctx); err != nil {
		a.failSettlement(w, r, unmark(ctx, mark, t, err))
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// unmark removes the mark of a settlement that failed with err and recorded nothing, so that the
// token can be sent again. Otherwise the error it returns wraps ErrOutcomeUnknown: units given back
// twice would be units that were used. The settlement of an extended reservation is several calls,
// of which some may have been recorded.
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
