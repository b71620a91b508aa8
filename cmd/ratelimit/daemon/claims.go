package daemon

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/httplimit/problem"
)

// Bounds of a request. They keep every ID that the daemon returns below maxID.
const (
	maxClaims = 16
	maxKey    = 1 << 10  // bytes of a key
	maxID     = 48 << 10 // bytes; a body of maxBody has room for it
)

// claimBody is a claim as requests write it.
type claimBody struct {
	limit *string
	key   *string
	n     *int64
}

func (c *claimBody) fields() fields {
	f := c.target()
	f["n"] = integer(&c.n, "n", 0, driver.MaxUnits)
	return f
}

// target returns the fields of a claim without its units.
func (c *claimBody) target() fields {
	return fields{
		"limit": value(&c.limit, text(`"limit" must be a string.`)),
		"key":   value(&c.key, text(badKey.Detail)),
	}
}

// claimList returns the field of a list of claims.
func claimList(dst *[]claimBody, r rule) field {
	read := list(r, func(dec *json.Decoder) *problem.Problem {
		if len(*dst) == maxClaims {
			return tooManyClaims
		}
		var c claimBody
		p := c.fields().decode(dec)
		if p != nil {
			p = invalid(where(len(*dst)) + ": " + p.Detail)
		}
		*dst = append(*dst, c)
		return p
	})
	return func(dec *json.Decoder) *problem.Problem {
		if p := read(dec); p != nil {
			return p
		}
		if len(*dst) == 0 {
			return invalid(r())
		}
		return nil
	}
}

// where names the claim at index i in the details of a problem.
func where(i int) string { return fmt.Sprintf("claims[%d]", i) }

// claimsBody is a key under all limits of --limit, or claims.
type claimsBody struct {
	whole  claimBody
	claims []claimBody
}

func (c *claimsBody) addTo(f fields) {
	f["key"] = value(&c.whole.key, text(badKey.Detail))
	f["n"] = integer(&c.whole.n, "n", 0, driver.MaxUnits)
	f["claims"] = claimList(&c.claims, text(`"claims" must be a list of at least one claim.`))
}

// claims returns the claims of a request. If it is wrong, it answers why and returns false.
func (a *api) claims(w http.ResponseWriter, body *claimsBody) ([]ratelimit.Claim, bool) {
	claims, p := a.budgets.claims(&body.whole, body.claims)
	if p != nil {
		p.Write(w)
	}
	return claims, p == nil
}

// claims returns the claims of a request: those of bodies, or whole under each limit of --limit.
func (b *budgets) claims(
	whole *claimBody, bodies []claimBody,
) ([]ratelimit.Claim, *problem.Problem) {
	place := where
	if bodies == nil {
		place = func(int) string { return "The request" }
		if p := checkKey(whole.key); p != nil {
			return nil, p
		}
		for _, l := range b.rates {
			bodies = append(bodies, claimBody{&l.limit.Name, whole.key, whole.n})
		}
	} else if whole.key != nil || whole.n != nil {
		return nil, invalid(`"claims" stands in place of "key" and "n".`)
	}
	claims := make([]ratelimit.Claim, len(bodies))
	for i := range bodies {
		c, p := b.claim(place(i), &bodies[i])
		if p == nil && slices.ContainsFunc(claims[:i], sameHistory(c)) {
			p = duplicateClaims
		}
		if p != nil {
			return nil, p
		}
		claims[i] = c
	}
	return claims, nil
}

func sameHistory(a ratelimit.Claim) func(ratelimit.Claim) bool {
	return func(b ratelimit.Claim) bool { return a.Limiter == b.Limiter && a.Key == b.Key }
}

func (b *budgets) claim(where string, body *claimBody) (ratelimit.Claim, *problem.Problem) {
	l, key, p := b.target(where, body, rate, inFlight, block)
	if p != nil {
		return ratelimit.Claim{}, p
	}
	n := int64(1)
	if l.kind == block {
		n = 0
	}
	if body.n != nil {
		n = *body.n
	}
	switch {
	case n < 0:
		p = invalid(where + ": " + integerRule("n", 0, driver.MaxUnits))
	case l.kind == block && n > 0:
		p = wrongKind(where + ` is on a block, which has no units: leave out "n", or set it to 0.`)
	case n > l.limit.Max:
		p = exceeds(where, l.limit)
	}
	return ratelimit.Claim{Limiter: l.Limiter, Key: key, N: n}, p
}

// target returns the budget and the key that a claim names. The budget is of one of kinds.
func (b *budgets) target(
	where string, body *claimBody, kinds ...kind,
) (*budget, string, *problem.Problem) {
	if body.limit == nil {
		return nil, "", invalid(where + ` has no "limit".`)
	}
	if p := checkKey(body.key); p != nil {
		return nil, "", p
	}
	l := b.byName[*body.limit]
	switch {
	case l == nil:
		return nil, "", unknownLimit(where)
	case !slices.Contains(kinds, l.kind):
		return nil, "", wrongKind(fmt.Sprintf("The limit %q was set by %v; this request "+
			"needs one of %v.", l.limit.Name, l.kind, kinds[0]))
	}
	return l, *body.key, nil
}
