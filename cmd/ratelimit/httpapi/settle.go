package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/cmd/ratelimit/access"
	"github.com/truewindow/ratelimit/cmd/ratelimit/audit"
	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/httplimit/problem"
)

const idRule = `"id" must be the id of an earlier answer.`

// settle ends what an ID holds and records what was used. Only the first settlement that records
// units finds them held.
func (a *API) settle(q *query) (answer, *problem.Problem) {
	var id *string
	var used unitsBody
	p := fields{"id": value(&id, text(idRule)), "used": used.field("used")}.parse(q.body)
	if p != nil {
		return answer{}, p
	}
	held, p := a.resume(id)
	if p != nil {
		return answer{}, p
	}
	defer stopRenewals(held)
	if p = q.mayEnd(held); p != nil {
		return answer{}, p
	}
	claims, p := a.settlement(held, &used)
	if p != nil {
		return answer{}, p
	}
	changes, action := settled(held.Claims(), claims), "settle"
	if used.none() {
		action = "release"
	}
	if q.within {
		within, err := a.decider.Within(q, *id, held, claims...)
		if err == nil && !within {
			q.refused = changes
			return answer{}, moreThanHeld(access.From(q))
		}
		if err != nil {
			return answer{}, a.settledHeld(q, action, held, changes, err)
		}
	}
	err := held.CommitAll(q, claims...)
	return answer{status: http.StatusNoContent}, a.settledHeld(q, action, held, changes, err)
}

// moreThanHeld returns the answer to a settlement of more than is held without the right to write.
func moreThanHeld(c *access.Caller) *problem.Problem {
	p := &problem.Problem{Status: http.StatusUnauthorized,
		Detail: "More is used than is held. This request needs the header Authorization: Bearer " +
			"TOKEN, with a token that may write."}
	if c.Kind == access.ByToken {
		p.Status = http.StatusForbidden
	}
	return p
}

// settledHeld notes the end of a settlement, and returns its problem if err is not nil.
func (a *API) settledHeld(
	q *query, action string, held *ratelimit.Reservation, changes []audit.Change, err error,
) (p *problem.Problem) {
	status := http.StatusNoContent
	if err != nil {
		p = a.failRepeatable(q, err, held.Claims())
		status = p.Status
	}
	a.audit.Begin(q, q.event(action, changes...)).End(q, status, err)
	return p
}

// mayEnd returns the answer to a caller who may not use a limit that held has.
func (q *query) mayEnd(held *ratelimit.Reservation) *problem.Problem {
	caller := access.From(q)
	for _, limit := range heldUnder(held.Claims()) {
		if !caller.MayUse(limit) {
			return q.forbid(settled(held.Claims(), nil)...)
		}
	}
	return nil
}

// settlement returns the claims that settle held.
func (a *API) settlement(
	held *ratelimit.Reservation, used *unitsBody,
) (claims []ratelimit.Claim, p *problem.Problem) {
	switch {
	case used.n == nil && used.list == nil:
	case used.n != nil && *used.n == 0: // not Cancel, which is repeated after the answer
		for _, c := range held.Claims() {
			if c.N = 0; holdsUnits(c) {
				claims = append(claims, c)
			}
		}
	default:
		claims, p = a.numbered(held, used)
	}
	return claims, p
}

// holdsUnits reports whether a claim that is held has units, and is no call in flight.
func holdsUnits(c ratelimit.Claim) bool {
	h, ok := c.Limiter.Algorithms()[0].(driver.Holder)
	return ok && !h.InFlight()
}

// renew holds what an ID holds for longer, and in total the units that the request names.
func (a *API) renew(q *query) (answer, *problem.Problem) {
	var id *string
	var hold *int64
	var total unitsBody
	p := fields{
		"id":      value(&id, text(idRule)),
		"hold_ms": holdField(&hold),
		"total":   total.field("total"),
	}.parse(q.body)
	if p != nil {
		return answer{}, p
	}
	held, more, p := a.extension(id, &total)
	if held != nil {
		defer stopRenewals(held)
		if forbidden := q.mayEnd(held); forbidden != nil {
			p = forbidden // whatever else is wrong with limits that are not the caller's
		}
	}
	if p == nil {
		p = checkHold(hold)
	}
	if p == nil {
		p = mayHold(held.Claims(), milliseconds(hold))
	}
	if p != nil {
		return answer{}, p
	}
	results, err := decision.Renew(q, held, milliseconds(hold), more...)
	if err == nil && len(results) > 0 && !results[ratelimit.Binding(results)].Allowed {
		return refusedExtension(results), nil
	}
	var text string
	if err == nil {
		text, err = held.Token()
	}
	if err != nil {
		return answer{}, a.failRepeatable(q, err, held.Claims())
	}
	return answer{status: http.StatusOK, body: renewal{text}}, nil
}

// renewal is the answer to a renewal.
type renewal struct {
	ID string `json:"id"`
}

// refusedExtension answers a renewal whose additional units do not fit.
func refusedExtension(results []ratelimit.Result) answer {
	var body decidedBody
	for _, res := range results {
		body.Limits = append(body.Limits, newLimitState(res.Limit, res))
	}
	binding := ratelimit.Binding(results)
	body.LimitState = body.Limits[binding]
	return answer{http.StatusTooManyRequests, body, max(1, results[binding].RetryAfter)}
}

// mayHold reports a hold that is too short or too long for what claims hold.
func mayHold(claims []ratelimit.Claim, d time.Duration) *problem.Problem {
	for _, c := range claims {
		if a := c.Limiter.Algorithms()[0]; c.N > 0 && !decision.MayHold(a, d) {
			return holdRange(a.Limit().Name, a)
		}
	}
	return nil
}

// extension returns the reservation of an ID, and the claims whose total units are more than it
// has, with what they are more. A limit in shadow mode refuses nothing, so it holds no more.
func (a *API) extension(
	id *string, total *unitsBody,
) (held *ratelimit.Reservation, more []ratelimit.Claim, p *problem.Problem) {
	if held, p = a.resume(id); p != nil {
		return nil, nil, p
	}
	claims, p := a.numbered(held, total)
	var requests []decision.Request
	shadow := func(c ratelimit.Claim) bool {
		l := limitOf(a.decider, c.Limiter.Limits()[0].Name)
		return l != nil && l.Shadow
	}
	for _, c := range claims {
		if limit := c.Limiter.Limits()[0].Name; c.N > unitsOf(held, c) && !shadow(c) {
			requests = append(requests, decision.Request{
				Limit: limit, Key: c.Key, Descriptor: total.entries(limit, c.Key)})
		}
	}
	if p != nil || len(requests) == 0 {
		return held, nil, p
	}
	stopRenewals(held) // it does not have the rates of the requests
	if held, p = a.resume(id, requests...); p != nil {
		return nil, nil, p
	}
	claims, _ = a.numbered(held, total)
	for _, c := range claims {
		switch has := unitsOf(held, c); {
		case c.N <= has, shadow(c): // the limit may be lower by now
		case c.N > c.Limiter.Max():
			return held, nil, exceeds(`"total"`, c.Limiter.Limits()[0])
		default:
			c.N -= has
			more = append(more, c)
		}
	}
	return held, more, nil
}

// unitsOf returns how many units held has of the limiter and key of a claim.
func unitsOf(held *ratelimit.Reservation, c ratelimit.Claim) int64 {
	for _, h := range held.Claims() {
		if h.Limiter == c.Limiter && h.Key == c.Key {
			return h.N
		}
	}
	return 0
}

// resume returns the reservation of an ID, which is its token, to be extended under the limits that
// requests name.
func (a *API) resume(
	id *string, extend ...decision.Request,
) (*ratelimit.Reservation, *problem.Problem) {
	if id == nil {
		return nil, invalid(idRule)
	}
	if len(*id) > maxID || strings.ContainsAny(*id, "\r\n") { // base64 skips them
		return nil, invalidID
	}
	r, err := a.decider.Resume(*id, extend...)
	wrong := (*decision.RequestError)(nil)
	switch {
	case errors.Is(err, driver.ErrExceedsLimit) && errors.As(err, &wrong):
		return nil, exceeds(`"total"`, wrong.Limit)
	case errors.As(err, &wrong):
		return nil, missingEntry(`"total"`, wrong)
	case errors.Is(err, ratelimit.ErrUnknownLimit):
		return nil, unknownLimit("The id")
	case err != nil:
		return nil, invalidID
	}
	tooLong := func(c ratelimit.Claim) bool { return len(c.Key) > maxKey }
	if c := r.Claims(); len(c) > maxClaims || slices.ContainsFunc(c, tooLong) {
		stopRenewals(r)
		return nil, invalidID // it was changed
	}
	return r, nil
}

// stopRenewals ends the renewals of a reservation that was resumed for one request.
func stopRenewals(r *ratelimit.Reservation) { _, _ = r.Token() }

// unitsBody is numbers of units for what an ID holds: n under the only limit of --limit, or a list
// that names limits.
type unitsBody struct {
	name string // of the field
	n    *int64
	list []claimBody
}

// none reports whether u says that no units were used.
func (u *unitsBody) none() bool {
	for _, c := range u.list {
		if *c.n != 0 {
			return false
		}
	}
	return u.list != nil || u.n != nil && *u.n == 0
}

// entries returns the further entries of a claim that u names.
func (u *unitsBody) entries(limit, key string) rules.Descriptor {
	for i := range u.list {
		if c := &u.list[i]; *c.limit == limit && (c.key == nil || *c.key == key) {
			return c.entries
		}
	}
	return nil
}

func (u *unitsBody) rule() string {
	return strings.TrimSuffix(integerRule(u.name, 0, driver.MaxUnits), ".") +
		", or a list of at least one claim."
}

// field returns the field that has the numbers.
func (u *unitsBody) field(name string) field {
	u.name = name
	number, claims := value(&u.n, u.rule), claimList(&u.list, u.rule)
	return func(dec *json.Decoder) *problem.Problem {
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return notJSON
		}
		read := number
		if raw[0] == '[' {
			read = claims
		}
		return read(json.NewDecoder(bytes.NewReader(raw)))
	}
}

// numbered returns the claims of held for which u has numbers, in their order, with those in N.
func (a *API) numbered(
	held *ratelimit.Reservation, u *unitsBody,
) (claims []ratelimit.Claim, p *problem.Problem) {
	for _, c := range held.Claims() {
		if holdsUnits(c) && c.N > 0 {
			c.N = -1 // no number yet
			claims = append(claims, c)
		}
	}
	if u.n != nil {
		switch {
		case *u.n < 0 || *u.n > driver.MaxUnits:
			return nil, invalid(u.rule())
		case len(claims) == 0:
			return nil, wrongKind("The id holds no units of a --limit.")
		case len(claims) > 1:
			return nil, invalid(fmt.Sprintf(
				"The id holds units of several limits: %q must be a list that names them.", u.name))
		}
		claims[0].N = *u.n
	}
	for i := range u.list {
		if p := a.number(claims, where(i), &u.list[i]); p != nil {
			return nil, p
		}
	}
	return slices.DeleteFunc(claims, func(c ratelimit.Claim) bool { return c.N < 0 }), nil
}

// number sets N of the claim that body names.
func (a *API) number(claims []ratelimit.Claim, where string, body *claimBody) *problem.Problem {
	switch {
	case body.limit == nil:
		return invalid(where + ` has no "limit".`)
	case body.n == nil || *body.n < 0 || *body.n > driver.MaxUnits:
		return invalid(where + ": " + integerRule("n", 0, driver.MaxUnits))
	case limitOf(a.decider, *body.limit) == nil:
		return unknownLimit(where)
	}
	at := -1
	for i, c := range claims {
		switch {
		case c.Limiter.Limits()[0].Name != *body.limit || body.key != nil && *body.key != c.Key:
		case at >= 0:
			return invalid(where + ` needs a "key": the id holds its limit for several.`)
		default:
			at = i
		}
	}
	switch {
	case at < 0:
		return wrongKind(where + ": the id holds no units of this limit and key that can be used.")
	case claims[at].N >= 0:
		return duplicateClaims
	}
	claims[at].N = *body.n
	return nil
}
