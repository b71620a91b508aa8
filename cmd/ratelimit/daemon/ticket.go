package daemon

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"strings"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/httplimit/problem"
)

// A ticket is a reservation with what the daemon adds to its token: an id, by which it is settled
// only once, and whether it was extended.
type ticket struct {
	*ratelimit.Reservation
	id       string // base64 of random bytes
	extended bool
	claims   []ratelimit.Claim
}

// A token of the daemon is one of these letters, the id, a dot, and the token of the reservation.
const (
	reservedToken = "r"
	extendedToken = "e"

	idBytes       = 16
	roomToExtend  = 1 << 10 // the most bytes that an extension adds to a token
	tokenRequired = `"token" must be a token that an earlier request returned.`
)

var idEncoding = base64.RawURLEncoding

// newID returns the id of a new reservation.
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
	r, err := ratelimit.Resume(rest, b.limiters...)
	switch {
	case errors.Is(err, ratelimit.ErrUnknownLimit):
		return nil, unknownToken
	case err != nil:
		return nil, invalidToken
	}
	return &ticket{r, id, form == extendedToken, r.Claims()}, nil
}
