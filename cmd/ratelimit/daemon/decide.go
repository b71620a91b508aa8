package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/httplimit/problem"
)

// maxWait is how long a request may wait for units to hold, in ms.
const maxWait = 5000

// decide takes the units of all claims or descriptors, or none. With hold_ms it holds them.
func (a *api) decide(w http.ResponseWriter, r *http.Request) {
	var hold, wait *int64
	body, described, ok := readDemand(w, r, fields{
		"hold_ms": holdField(&hold), "wait_ms": integer(&wait, "wait_ms", 0, maxWait)})
	if !ok {
		return
	}
	if a.describe(&described, &body) {
		opts, p := holdOptions(r.Context(), hold, wait)
		if p != nil {
			p.Write(w)
			return
		}
		a.decideDescriptors(w, r, &described, &body, opts)
		return
	}
	claims, ok := a.claims(w, &body)
	if !ok {
		return
	}
	if p := a.budgets.checkDecision(claims, hold, wait); p != nil {
		p.Write(w)
		return
	}
	var id string
	var results []ratelimit.Result
	var err error
	ctx := decision.Admitting(r.Context())
	if hold == nil {
		results, err = ratelimit.AllowAll(ctx, claims...)
	} else {
		for i := range claims {
			claims[i].Hold = milliseconds(hold)
		}
		id, results, err = a.budgets.hold(ctx, claims, milliseconds(wait))
	}
	if err != nil {
		a.fail(w, r, err, claims...)
		return
	}
	a.decisions.claims(r.Context(), claims, results)
	writeDecision(w, http.StatusTooManyRequests, id, claims, results)
}

func holdField(dst **int64) field { return integer(dst, "hold_ms", 0, driver.MaxUnits) }

// milliseconds returns ms as a duration; nil is 0.
func milliseconds(ms *int64) time.Duration {
	if ms == nil {
		return 0
	}
	return time.Duration(*ms) * time.Millisecond
}

// peek answers what decide would, and takes nothing.
func (a *api) peek(w http.ResponseWriter, r *http.Request) {
	body, described, ok := readDemand(w, r, fields{})
	if !ok {
		return
	}
	if a.describe(&described, &body) {
		a.decideDescriptors(w, r, &described, &body, decision.Options{Peek: true})
		return
	}
	claims, ok := a.claims(w, &body)
	if !ok {
		return
	}
	results, err := ratelimit.PeekAll(r.Context(), claims...)
	if err != nil {
		a.fail(w, r, err, claims...)
		return
	}
	writeDecision(w, http.StatusOK, "", claims, results)
}

// checkDecision reports what is wrong with hold_ms and wait_ms for claims.
func (b *budgets) checkDecision(claims []ratelimit.Claim, hold, wait *int64) *problem.Problem {
	if p := checkWait(hold, wait); p != nil {
		return p
	}
	switch {
	case hold != nil && len(claims) > maxClaims:
		return tooManyClaims
	case hold != nil:
		return b.checkHold(claims, hold)
	}
	for i, c := range claims {
		if c.N > 0 && b.of(c).kind == inFlight {
			return wrongKind(where(i) + ` is a call in flight, which is held until it is ` +
				`settled: add "hold_ms", such as 0.`)
		}
	}
	return nil
}

func checkWait(hold, wait *int64) *problem.Problem {
	switch {
	case wait != nil && (*wait < 0 || *wait > maxWait):
		return invalid(integerRule("wait_ms", 0, maxWait))
	case wait != nil && hold == nil:
		return invalid(`"wait_ms" needs "hold_ms".`)
	}
	return nil
}

// checkHold reports a hold_ms that is too short or too long for what claims hold.
func (b *budgets) checkHold(claims []ratelimit.Claim, hold *int64) *problem.Problem {
	if p := checkHoldRange(hold); p != nil {
		return p
	}
	d := milliseconds(hold)
	for _, c := range claims {
		l := b.of(c)
		least, most := l.timeout/16, l.timeout*16
		if d > 0 && c.N > 0 && l.timeout > 0 && (d < least || d > most) {
			return unprocessable(driverDocs+"ErrInvalid", "Hold too short or too long",
				fmt.Sprintf(`"hold_ms" must be 0, or from %v to %v for the limit %q.`,
					least, most, l.limit.Name))
		}
	}
	return nil
}

func checkHoldRange(hold *int64) *problem.Problem {
	if hold != nil && (*hold < 0 || *hold > driver.MaxUnits) {
		return invalid(integerRule("hold_ms", 0, driver.MaxUnits))
	}
	return nil
}

// hold holds the units of claims, and waits for them. The ID is empty if they are refused, or if
// nothing is held: they have no units, or the policy has admitted them.
func (b *budgets) hold(
	ctx context.Context, claims []ratelimit.Claim, wait time.Duration,
) (id string, results []ratelimit.Result, err error) {
	r, err := reserve(ctx, claims, wait)
	if err != nil {
		return "", nil, err
	}
	results = r.Results()
	holds := false
	for _, c := range claims {
		holds = holds || c.N > 0 // a block has no units
	}
	switch {
	case !r.Allowed() || !holds:
	case r.Result().Source == ratelimit.SourceOpen:
		_ = r.Cancel(ctx) // what the store may hold all the same
	default:
		if id, err = r.Token(); err != nil {
			_ = r.Cancel(ctx)
		}
	}
	return id, results, err
}

// reserve reserves claims. It waits for longest at most, and for one more call of the store. If
// they do not fit then, the reservation is not Allowed. It stops waiting when the client has closed
// its half of the connection, because the client may have disconnected, and when the service is to
// stop.
func reserve(
	ctx context.Context, claims []ratelimit.Claim, longest time.Duration,
) (*ratelimit.Reservation, error) {
	if longest > 0 {
		waiting, cancel := context.WithTimeout(ctx, longest)
		defer cancel()
		ends := ctx.Value(waitsKey{}).(*waits)
		defer context.AfterFunc(ends.client, cancel)()
		if ends.stop != nil {
			defer context.AfterFunc(ends.stop, cancel)()
		}
		r, err := ratelimit.AcquireAll(waiting, claims...)
		switch {
		case err == nil, errors.Is(err, ratelimit.ErrOutcomeUnknown), waiting.Err() == nil:
			return r, err
		case r != nil && ends.client.Err() != nil:
			return r, nil // refused; another call could hold units for a client that has left
		}
	}
	return ratelimit.ReserveAll(ctx, claims...)
}
