package ratelimit

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/truewindow/ratelimit/driver"
)

// ErrInvalidToken means that the text passed to [Resume] is not a token that [Reservation.Token]
// made, or that Token would make a text of more than 1 MiB. [ErrUnknownLimit] wraps it.
var ErrInvalidToken = errors.New("ratelimit: invalid reservation token")

// ErrUnknownLimit means that [Resume] got no limiter that fits a claim of the token. A limiter fits
// if its limits have the same names in the same order, and if it was made by the same function,
// [New] or [NewInFlight]. It wraps [ErrInvalidToken].
var ErrUnknownLimit = fmt.Errorf("%w: no limiter was passed for its limits", ErrInvalidToken)

// maxToken is the largest size of a token in bytes. Resume may get tokens from untrusted sources.
const maxToken = 1 << 20

// tokenVersion is the version of the form of tokens.
const tokenVersion = 1

// token is the content of a token, which is encoded as JSON in base64.
type token struct {
	Version int           `json:"v"`
	Claims  []tokenClaim  `json:"c"`
	Charges []tokenCharge `json:"p,omitempty"`
}

type tokenClaim struct {
	Key      []byte   `json:"k"`
	Limits   []string `json:"l"` // names
	N        int64    `json:"n"`
	InFlight bool     `json:"f,omitempty"`
}

// tokenCharge is one charge. Units has a number for each claim. Stamps has, for each claim, the
// stamp of each limit.
type tokenCharge struct {
	Units  []int64   `json:"u"`
	Stamps [][]int64 `json:"s"`
}

// Token returns the reservation as text without spaces. [Resume] turns it into a reservation again,
// also in another process. The text holds the keys, the names of the limits, the units and the
// stamps of what was recorded. It is neither encrypted nor signed: anyone who has it can read the
// keys and, by changing it, give back what others have taken.
//
// The token takes the place of r: from then on Commit and Extend return an error, and Cancel and
// Release do nothing. Settle a token only once: a second settlement gives back units that were
// used, and nothing detects it. If messages can be delivered more than once, remember which tokens
// are settled.
//
// An error wraps [ErrInvalid] if the reservation was refused or is settled, even if a
// settlement has failed. It wraps [ErrInvalidToken] if the token would be longer than 1 MiB, as
// with keys of 700 KB or after thousands of extensions. After an error r can be settled as before.
func (r *Reservation) Token() (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.settled {
		return "", fmt.Errorf("%w demand: the reservation is settled or was refused", ErrInvalid)
	}
	t := token{Version: tokenVersion}
	for _, c := range r.claims {
		t.Claims = append(t.Claims,
			tokenClaim{[]byte(c.Key), limitNames(c.Limiter), c.N, c.Limiter.inFlight})
	}
	for _, ch := range r.charges {
		stamps := make([][]int64, len(r.claims))
		for i, admission := range ch.admissions {
			for _, res := range admission {
				stamps[i] = append(stamps[i], res.At)
			}
		}
		t.Charges = append(t.Charges, tokenCharge{ch.units, stamps})
	}
	text, err := json.Marshal(t)
	if err != nil {
		return "", err
	}
	if base64.RawURLEncoding.EncodedLen(len(text)) > maxToken {
		return "", tooLong()
	}
	r.settled, r.tokened, r.charges = true, true, nil
	return base64.RawURLEncoding.EncodeToString(text), nil
}

// Resume returns the reservation of a token, to be settled or extended. Pass the limiters of its
// claims, in any order; other limiters are ignored. They must be on the store that the reservation
// was made on, which the token does not name. Each claim gets the first limiter that fits, whatever
// its Max; see [ErrUnknownLimit]. Extend uses the limits of that limiter.
//
// Resume does no I/O. The results of the reservation are Allowed, and of their numbers only Limit
// is set. The units of a token that is never settled stay charged until they leave the window.
//
// An error wraps [ErrInvalidToken]. It also wraps [ErrUnknownLimit] if a limiter is missing.
func Resume(text string, limiters ...*Limiter) (*Reservation, error) {
	t, err := parseToken(text)
	if err != nil {
		return nil, err
	}
	r := &Reservation{}
	for _, c := range t.Claims {
		l := c.limiter(limiters)
		if l == nil {
			return nil, fmt.Errorf("%w: %q", ErrUnknownLimit, c.Limits)
		}
		r.claims = append(r.claims, Claim{Limiter: l, Key: string(c.Key), N: c.N})
		for _, limit := range l.limits {
			r.results = append(r.results, Result{Allowed: true, Limit: limit})
		}
	}
	for _, ch := range t.Charges {
		r.charges = append(r.charges, ch.charge())
	}
	return r, nil
}

func tooLong() error {
	return fmt.Errorf("%w: it is longer than %d bytes", ErrInvalidToken, maxToken)
}

func parseToken(text string) (t token, err error) {
	if len(text) > maxToken {
		return t, tooLong()
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return t, fmt.Errorf("%w: it is not base64url", ErrInvalidToken)
	}
	dec := json.NewDecoder(strings.NewReader(string(raw)))
	dec.DisallowUnknownFields()
	err = dec.Decode(&t)
	if _, end := dec.Token(); err != nil || !errors.Is(end, io.EOF) {
		return t, fmt.Errorf("%w: it is not the JSON of a token", ErrInvalidToken)
	}
	return t, t.check()
}

// check returns an error for a token that no reservation writes.
func (t token) check() error {
	bad := fmt.Errorf("%w: its claims, units and stamps do not match", ErrInvalidToken)
	if t.Version != tokenVersion {
		return fmt.Errorf("%w: its version is %d, not %d", ErrInvalidToken, t.Version, tokenVersion)
	}
	if len(t.Claims) == 0 {
		return bad
	}
	total := make([]int64, len(t.Claims))
	for _, ch := range t.Charges {
		if len(ch.Units) != len(t.Claims) || len(ch.Stamps) != len(t.Claims) {
			return bad
		}
		for i, c := range t.Claims {
			stamps := ch.Stamps[i]
			recorded := len(stamps) == len(c.Limits) && !slices.ContainsFunc(stamps, outOfTime)
			if ch.Units[i] < 0 || ch.Units[i] > driver.MaxUnits || ch.Units[i] > 0 && !recorded {
				return bad
			}
			total[i] += ch.Units[i]
		}
	}
	for i, c := range t.Claims {
		if len(c.Key) == 0 || len(c.Limits) == 0 || c.N < total[i] || c.N > driver.MaxUnits {
			return bad
		}
	}
	return nil
}

// outOfTime reports whether a stamp is outside the range of a store's clock.
func outOfTime(stamp int64) bool { return stamp <= 0 || stamp >= 1<<53 }

func (c tokenCharge) charge() charge {
	ch := charge{c.Units, make([][]Result, len(c.Units))}
	for i, stamps := range c.Stamps {
		for _, at := range stamps {
			ch.admissions[i] = append(ch.admissions[i], Result{Allowed: true, At: at})
		}
	}
	return ch
}

func limitNames(l *Limiter) []string {
	names := make([]string, len(l.limits))
	for i, limit := range l.limits {
		names[i] = limit.Name
	}
	return names
}

// limiter returns the first limiter that fits a claim of a token, or nil.
func (c tokenClaim) limiter(limiters []*Limiter) *Limiter {
	for _, l := range limiters {
		if l != nil && l.inFlight == c.InFlight && slices.Equal(limitNames(l), c.Limits) {
			return l
		}
	}
	return nil
}
