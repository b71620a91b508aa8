package daemon

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/httplimit/problem"
)

// answerFunc answers a request.
type answerFunc func(a *api, w http.ResponseWriter, r *http.Request)

// budgetPaths are the requests about limits by name.
var budgetPaths = map[string]answerFunc{
	"/v1/take-all": (*api).takeAll,
	"/v1/peek-all": (*api).peekAll,
	"/v1/reserve":  (*api).reserve,
	"/v1/extend":   (*api).extend,
	"/v1/commit":   (*api).commit,
	"/v1/cancel":   (*api).cancel,
	"/v1/acquire":  (*api).acquire,
	"/v1/release":  (*api).release,
	"/v1/force":    (*api).force,
	"/v1/block":    (*api).block,
	"/v1/unblock":  (*api).unblock,
}

var budgetPathNames = strings.Join(slices.Sorted(maps.Keys(budgetPaths)), ", ")

func (a *api) takeAll(w http.ResponseWriter, r *http.Request) {
	claims, ok := a.readClaims(w, r)
	if !ok {
		return
	}
	for i, c := range claims {
		if c.N > 0 && a.budgets.of(c).kind == inFlight {
			wrongKind(where(i) + " is a call in flight, which has to be released with a token: " +
				"get one from POST /v1/reserve or POST /v1/acquire.").Write(w)
			return
		}
	}
	results, err := ratelimit.AllowAll(r.Context(), claims...)
	if err != nil {
		a.failClaims(w, r, err, claims...)
		return
	}
	writeClaims(w, claims, results, "")
}

func (a *api) peekAll(w http.ResponseWriter, r *http.Request) {
	claims, ok := a.readClaims(w, r)
	if !ok {
		return
	}
	results, err := ratelimit.PeekAll(r.Context(), claims...)
	if err != nil {
		a.failClaims(w, r, err, claims...)
		return
	}
	writeJSON(w, http.StatusOK, newClaimsAnswer(claims, results))
}

func (a *api) force(w http.ResponseWriter, r *http.Request) {
	var body claimBody
	f := body.target()
	f["n"] = integer(&body.n, "n", 1, driver.MaxUnits)
	if !readFields(w, r, f) {
		return
	}
	b, key, p := a.budgets.target(&body, "The request", rate)
	if p == nil && (body.n == nil || *body.n < 1 || *body.n > driver.MaxUnits) {
		p = invalid(integerRule("n", 1, driver.MaxUnits))
	}
	if p != nil {
		p.Write(w)
		return
	}
	res, err := b.Force(r.Context(), key, *body.n)
	if err != nil {
		a.failClaims(w, r, err, ratelimit.Claim{Limiter: b.Limiter})
		return
	}
	writeJSON(w, http.StatusOK, newLimitState(b.limit, res))
}

// readClaims reads the claims of a request. If they are wrong, it answers why and returns false.
func (a *api) readClaims(w http.ResponseWriter, r *http.Request) ([]ratelimit.Claim, bool) {
	var bodies []claimBody
	if !readFields(w, r, fields{"claims": claimList(&bodies)}) {
		return nil, false
	}
	if len(bodies) == 0 {
		invalid(claimsRequired).Write(w)
		return nil, false
	}
	claims := make([]ratelimit.Claim, len(bodies))
	seen := make(map[ratelimit.Claim]bool)
	for i := range bodies {
		var p *problem.Problem
		claims[i], p = a.budgets.claim(i, &bodies[i])
		history := ratelimit.Claim{Limiter: claims[i].Limiter, Key: claims[i].Key}
		if p == nil && seen[history] {
			p = duplicateClaims
		}
		if p != nil {
			p.Write(w)
			return nil, false
		}
		seen[history] = true
	}
	return claims, true
}

// claim returns the claim of a request at index i.
func (b *budgets) claim(i int, body *claimBody) (ratelimit.Claim, *problem.Problem) {
	l, key, p := b.target(body, where(i), rate, inFlight, block)
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
	if n < 0 {
		return ratelimit.Claim{}, invalid(where(i) + ": " + integerRule("n", 0, driver.MaxUnits))
	}
	c := ratelimit.Claim{Limiter: l.Limiter, Key: key, N: n}
	return c, b.checkUnits(i, c)
}

// checkUnits reports a claim, or an extension of one, that is never admitted.
func (b *budgets) checkUnits(i int, c ratelimit.Claim) *problem.Problem {
	l := b.of(c)
	switch {
	case l.kind == block && c.N > 0:
		return wrongKind(where(i) + ` is on a block, which has no units: leave out "n", ` +
			`or set it to 0.`)
	case c.N > l.limit.Max:
		return exceeds(where(i), l.limit)
	}
	return nil
}

// target returns the budget and the key that a request names. The budget is of one of kinds.
func (b *budgets) target(
	body *claimBody, where string, kinds ...kind,
) (*budget, string, *problem.Problem) {
	if body.limit == nil {
		return nil, "", invalid(where + ` has no "limit".`)
	}
	if p := checkKey(body.key); p != nil {
		return nil, "", invalid(p.Detail)
	}
	l := b.byName[*body.limit]
	if l == nil {
		return nil, "", unknownLimit(where)
	}
	if !slices.Contains(kinds, l.kind) {
		return nil, "", wrongKind(fmt.Sprintf("The limit %q was set by %v; this request "+
			"needs one of %v.",
			l.limit.Name, l.kind, kinds[0]))
	}
	return l, *body.key, nil
}

// where names the claim at index i in the details of a problem.
func where(i int) string { return fmt.Sprintf("claims[%d]", i) }

// invalid is badRequest with a type.
func invalid(detail string) *problem.Problem {
	p := badRequest(detail)
	p.Type = problemDocs + "invalid-request"
	return p
}

// writeClaims answers with the decision about claims: 200, with the token if there is one, or 429.
func writeClaims(
	w http.ResponseWriter, claims []ratelimit.Claim, results []ratelimit.Result, token string,
) {
	if !results[ratelimit.Binding(results)].Allowed {
		refuse(w, claims, results)
		return
	}
	writeJSON(w, http.StatusOK, tokenAnswer{token, newClaimsAnswer(claims, results)})
}

// tokenAnswer is an answer that may have a token.
type tokenAnswer struct {
	Token string `json:"token,omitempty"`
	answer
}

// newClaimsAnswer returns the answer to claims, with a limit for each.
func newClaimsAnswer(claims []ratelimit.Claim, results []ratelimit.Result) answer {
	var all answer
	for i, c := range claims {
		all.Limits = append(all.Limits, newLimitState(c.Limiter.Limits()[0], results[i]))
	}
	all.limitState = all.Limits[ratelimit.Binding(results)]
	return all
}

// refusal is the problem details of claims that were refused.
type refusal struct {
	problem.Problem
	RetryAfterMS int64          `json:"retry_after_ms"`
	Refused      []refusedClaim `json:"refused"`
}

// refusedClaim is a claim that its limit refuses, by its index in the request.
type refusedClaim struct {
	Claim int `json:"claim"`
	limitState
}

// refuse answers 429 with the limits that refuse.
func refuse(w http.ResponseWriter, claims []ratelimit.Claim, results []ratelimit.Result) {
	body := refusal{Problem: problem.Problem{
		Type: problem.QuotaExceeded, Title: "Quota Exceeded", Status: http.StatusTooManyRequests,
		Detail: "Nothing was recorded.",
	}}
	for i, res := range results {
		if res.Allowed {
			continue
		}
		state := newLimitState(claims[i].Limiter.Limits()[0], res)
		body.Refused = append(body.Refused, refusedClaim{i, state})
		if !slices.Contains(body.ViolatedPolicies, state.Name) {
			body.ViolatedPolicies = append(body.ViolatedPolicies, state.Name)
		}
	}
	retryAfter := results[ratelimit.Binding(results)].RetryAfter
	body.RetryAfterMS = ceilMS(retryAfter)
	problem.SetRetryAfter(w.Header(), retryAfter)
	problem.Send(w, body.Status, body)
}
