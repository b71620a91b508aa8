package ratelimit

import (
	"bytes"
	"context"
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
// if its limits with holds have the same names and algorithms in the same order. It wraps
// [ErrInvalidToken].
var ErrUnknownLimit = fmt.Errorf("%w: no limiter was passed for its limits", ErrInvalidToken)

// maxToken is the largest size of a token in bytes. Resume may get tokens from untrusted sources.
const maxToken = 1 << 20

// tokenVersion is the version of the form of tokens.
const tokenVersion = 2

// token is the content of a token, which is encoded as JSON in base64.
type token struct {
	Version int                   `json:"v"`
	ID      uint64                `json:"i"`
	Claims  boundList[tokenClaim] `json:"c"` // those with holds
}

type tokenClaim struct {
	Key        []byte            `json:"k"`
	Limits     boundList[string] `json:"l"` // names of the limits with holds
	Algorithms boundList[string] `json:"a"` // and of their algorithms
	N          int64             `json:"n"`
}

// boundList is a list of at most driver.MaxDemands elements. Without a bound a token of 1 MiB makes
// 100 MiB of claims. A second list of the same name is an error.
type boundList[T any] []T

var errList = errors.New("not a list, or a second one")

func (l *boundList[T]) UnmarshalJSON(text []byte) error {
	if *l != nil {
		return errList
	}
	*l = boundList[T]{}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if begin, err := dec.Token(); err != nil || begin != json.Delim('[') {
		return errList
	}
	for dec.More() {
		if len(*l) == driver.MaxDemands {
			return tooMany()
		}
		var next T
		if err := dec.Decode(&next); err != nil {
			return err
		}
		*l = append(*l, next)
	}
	return nil
}

// Token returns the reservation as text without spaces, which takes its place: from then on r
// renews nothing, Commit and Extend return an error, and Cancel does nothing. [Resume] turns the
// text into a reservation again, also in another process. Token does no I/O. The holds last as long
// as the last renewal says, usually for two thirds of their time-out at least; [Reservation.Renew]
// before Token changes that.
//
// The text holds the ID, the keys, the names of the limits and algorithms, and the units. It is
// neither encrypted nor signed: anyone who has it can read the keys and settle the reservation. The
// keys in it are never hashes, even if the store is a layer.HashedKeys.
//
// An error wraps [ErrInvalid] if r has ended or holds nothing: it has no units under limits with
// holds, or the policy has admitted it. It wraps [ErrInvalidToken] if [Resume] would refuse the
// token, such as one longer than 1 MiB, with keys of 700 KB. After an error r is as before.
func (r *Reservation) Token() (string, error) {
	r.mu.Lock()
	defer r.unlock()
	if r.ended != notEnded {
		return "", errEnded
	}
	t := token{Version: tokenVersion, ID: r.id}
	holds := false
	for _, c := range r.claims {
		if l := c.Limiter.subset(isHolder); l != nil {
			limits, algorithms := l.names()
			t.Claims = append(t.Claims, tokenClaim{[]byte(c.Key), limits, algorithms, c.N})
			holds = holds || c.N > 0
		}
	}
	if !holds || r.results[0].Source == SourceOpen {
		return "", fmt.Errorf("%w demand: the reservation holds nothing", ErrInvalid)
	}
	if err := t.check(); err != nil {
		return "", err
	}
	text, err := json.Marshal(t)
	if err != nil {
		return "", err
	}
	if base64.RawURLEncoding.EncodedLen(len(text)) > maxToken {
		return "", tooLong()
	}
	r.closeAllLocked(nil)
	r.tellLocked() // if an observer panics, r is as before
	r.stopLocked(tokened)
	return base64.RawURLEncoding.EncodeToString(text), nil
}

// Resume returns the reservation of a token, to be settled or extended, with its claims that have
// holds. Pass their limiters, in any order; other limiters are ignored. They must be on the store
// that the reservation was made on, which the token does not name. Each claim gets the first
// limiter that fits, whatever its Max; see [ErrUnknownLimit].
//
// Resume does no I/O. The results of the reservation are Allowed, and of their numbers only Limit
// is set. The reservation renews its holds until it is settled, for the first time a second later,
// since it does not know how long they last.
//
// Anyone can make up a token, so Resume refuses one with more than [driver.MaxDemands] limits, and
// one that no store would settle. An error wraps [ErrInvalidToken]. It also wraps [ErrUnknownLimit]
// if a limiter is missing.
func Resume(text string, limiters ...*Limiter) (*Reservation, error) {
	t, err := parseToken(text)
	if err != nil {
		return nil, err
	}
	var claims []Claim
	var results []Result
	for _, c := range t.Claims {
		l := c.limiter(limiters)
		if l == nil {
			return nil, fmt.Errorf("%w: %.64q", ErrUnknownLimit, c.Limits[:min(len(c.Limits), 8)])
		}
		claims = append(claims, Claim{Limiter: l, Key: string(c.Key), N: c.N})
		for _, limit := range l.limits {
			results = append(results, Result{Allowed: true, Limit: limit})
		}
	}
	if err := checkSettlement(t.ID, claims); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidToken, err)
	}
	r := newReservation(t.ID, claims)
	r.results = results
	r.mu.Lock()
	defer r.unlock()
	if timeout := r.timeoutLocked(); timeout > 0 {
		r.renewAfterLocked(min(renewAgain, timeout/renewals))
	}
	return r, nil
}

// checkSettlement returns the error that every store returns for a settlement of claims, or nil.
func checkSettlement(id uint64, claims []Claim) error {
	c, err := claimed(driver.OpSettle, id, claims)
	if err != nil {
		return err
	}
	defer c.release()
	return driver.CheckTakeAll(context.Background(), c.demands, c.results)
}

func tooMany() error {
	return fmt.Errorf("%w: it has more than %d limits", ErrInvalidToken, driver.MaxDemands)
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
	if errors.Is(err, ErrInvalidToken) {
		return t, err
	}
	if _, end := dec.Token(); err != nil || !errors.Is(end, io.EOF) {
		return t, fmt.Errorf("%w: it is not the JSON of a token", ErrInvalidToken)
	}
	return t, t.check()
}

// check returns an error for a token that no reservation has.
func (t token) check() error {
	if t.Version != tokenVersion {
		return fmt.Errorf("%w: its version is %d, not %d", ErrInvalidToken, t.Version, tokenVersion)
	}
	bad, limits := t.ID == 0 || len(t.Claims) == 0, 0
	for _, c := range t.Claims {
		limits += len(c.Limits)
		bad = bad || len(c.Key) == 0 || len(c.Limits) == 0 || len(c.Limits) != len(c.Algorithms) ||
			c.N < 0 || c.N > driver.MaxUnits
	}
	if bad {
		return fmt.Errorf("%w: its ID or its claims are out of range", ErrInvalidToken)
	}
	if limits > driver.MaxDemands {
		return tooMany()
	}
	return nil
}

// names returns the names of the limits and of the algorithms of l.
func (l *Limiter) names() (limits, algorithms []string) {
	for i, a := range l.algorithms {
		limits, algorithms = append(limits, l.limits[i].Name), append(algorithms, a.Name())
	}
	return limits, algorithms
}

// limiter returns the first limiter that fits a claim of a token, with its limits that have holds,
// or nil.
func (c tokenClaim) limiter(limiters []*Limiter) *Limiter {
	for _, l := range limiters {
		if l == nil {
			continue
		}
		if l = l.subset(isHolder); l == nil {
			continue
		}
		limits, algorithms := l.names()
		if slices.Equal(limits, c.Limits) && slices.Equal(algorithms, c.Algorithms) {
			return l
		}
	}
	return nil
}
