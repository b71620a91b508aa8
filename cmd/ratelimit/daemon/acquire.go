package daemon

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/truewindow/ratelimit"
)

func (a *api) acquire(w http.ResponseWriter, r *http.Request) {
	var body claimBody
	var wait *int64
	f := body.target()
	f["wait_ms"] = integer(&wait, "wait_ms", 0, maxWait)
	if !readFields(w, r, f) {
		return
	}
	b, key, p := a.budgets.target(&body, "The request", inFlight)
	if p == nil && wait != nil && (*wait < 0 || *wait > maxWait) {
		p = invalid(integerRule("wait_ms", 0, maxWait))
	}
	if p != nil {
		p.Write(w)
		return
	}
	var longest time.Duration
	if wait != nil {
		longest = time.Duration(*wait) * time.Millisecond
	}
	reserved, err := b.acquire(r.Context(), key, longest)
	claims := []ratelimit.Claim{{Limiter: b.Limiter, Key: key, N: 1}}
	var text string
	if err == nil && reserved.Allowed() {
		if text, err = a.budgets.token(r.Context(), reserved, claims); err != nil {
			_ = reserved.Cancel(r.Context())
		}
	}
	if err != nil {
		a.failClaims(w, r, err, claims...)
		return
	}
	writeClaims(w, claims, reserved.Results(), text)
}

// acquire acquires a call in flight. It waits for longest at most, and for one more call of the
// store. If none is free then, the reservation is not Allowed. It stops waiting when the client has
// closed its half of the connection, because the client may have disconnected.
func (b *budget) acquire(
	ctx context.Context, key string, longest time.Duration,
) (*ratelimit.Reservation, error) {
	if longest > 0 {
		waiting, cancel := context.WithTimeout(ctx, longest)
		defer cancel()
		if client, ok := ctx.Value(clientKey{}).(context.Context); ok {
			defer context.AfterFunc(client, cancel)()
		}
		reserved, err := b.Acquire(waiting, key, 1)
		if err == nil || errors.Is(err, ratelimit.ErrOutcomeUnknown) || waiting.Err() == nil {
			return reserved, err
		}
	}
	return b.Reserve(ctx, key, 1)
}

func (a *api) release(w http.ResponseWriter, r *http.Request) {
	t, ok := a.readTicket(w, r)
	if !ok {
		return
	}
	for _, c := range t.held {
		if a.budgets.of(c).kind != inFlight {
			notALease.Write(w)
			return
		}
	}
	a.settle(w, r, t, t.Cancel)
}
