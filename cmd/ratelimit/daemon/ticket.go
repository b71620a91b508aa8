package daemon

import (
	"context"
	"errors"
	"strings"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/httplimit/problem"
)

// A ticket is a reservation that a token has brought back.
type ticket struct {
	*ratelimit.Reservation
	held   []ratelimit.Claim // of the reservation
	claims []ratelimit.Claim // of the request: held, and in the place of a block the zero Claim
}

// A token of the daemon is a letter for each claim of the request, a dot, and the token of the
// reservation, which has no blocks.
const (
	heldClaim     = 'h'
	otherClaim    = '-'
	tokenRequired = `"token" must be a token that an earlier request returned.`
)

// token returns the token of a reservation for claims, or "" if it holds nothing: it has no units,
// or the policy has admitted it.
func (b *budgets) token(
	ctx context.Context, r *ratelimit.Reservation, claims []ratelimit.Claim,
) (string, error) {
	var form strings.Builder
	holds := false
	for _, c := range claims {
		letter := otherClaim
		if c.Limiter != nil && b.of(c).kind != block {
			letter, holds = heldClaim, holds || c.N > 0
		}
		form.WriteRune(letter)
	}
	if !holds {
		return "", nil
	}
	if r.Result().Source == ratelimit.SourceOpen {
		_ = r.Cancel(ctx) // what the store may hold all the same
		return "", nil
	}
	text, err := r.Token(ctx, 0)
	if err != nil {
		return "", err
	}
	return form.String() + "." + text, nil
}

// ticket returns the ticket of a token.
func (b *budgets) ticket(text *string) (*ticket, *problem.Problem) {
	if text == nil {
		return nil, invalid(tokenRequired)
	}
	form, rest, ok := strings.Cut(*text, ".")
	if !ok || len(*text) > maxToken || len(form) > maxClaims ||
		strings.ContainsAny(rest, "\r\n") { // base64 skips them
		return nil, invalidToken
	}
	r, err := ratelimit.Resume(rest, b.limiters...)
	switch {
	case errors.Is(err, ratelimit.ErrUnknownLimit):
		return nil, unknownToken
	case err != nil:
		return nil, invalidToken
	}
	t := &ticket{r, r.Claims(), make([]ratelimit.Claim, len(form))}
	at := 0
	for i, letter := range form {
		if letter == heldClaim && at < len(t.held) {
			t.claims[i] = t.held[at]
			at++
		} else if letter != otherClaim {
			return nil, invalidToken
		}
	}
	if at < len(t.held) {
		return nil, invalidToken
	}
	return t, nil
}
