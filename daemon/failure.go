package daemon

import (
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/internal/problem"
)

// errorDocs is where each error of the module is documented, which makes the address the type of
// its problem.
const errorDocs = "https://pkg.go.dev/github.com/truewindow/ratelimit#"

var exceedsLimit = problem.Problem{
	Type:   errorDocs + "ErrExceedsLimit",
	Title:  "Demand exceeds the limit",
	Status: http.StatusUnprocessableEntity,
	Detail: `"n" is more than the limit ever admits.`,
}

// undecided lists the errors of a store with what they mean to a client, the most particular first.
var undecided = []struct {
	err     error
	problem problem.Problem
}{
	{ratelimit.ErrOutcomeUnknown, problem.Problem{
		Type:  errorDocs + "ErrOutcomeUnknown",
		Title: "Outcome unknown",
		Detail: "The store did not answer in time. The demand may have been recorded; sending it " +
			"again may count it twice.",
	}},
	{ratelimit.ErrCapacity, problem.Problem{
		Type:   errorDocs + "ErrCapacity",
		Title:  "No room for another key",
		Detail: "The store holds as many keys as it may. Nothing was recorded.",
	}},
	{ratelimit.ErrCorruptState, problem.Problem{
		Type:  errorDocs + "ErrCorruptState",
		Title: "Stored state is corrupt",
		Detail: "What is stored for this key is not readable. Nothing was recorded; " +
			"POST /v1/reset removes it.",
	}},
	{ratelimit.ErrUnavailable, problem.Problem{
		Type:   errorDocs + "ErrUnavailable",
		Title:  "Store unavailable",
		Detail: "The store is unavailable. Nothing was recorded.",
	}},
}

// fail answers a request that the limiter could not decide. The cause goes to the log, not to the
// client.
func (a *api) fail(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, ratelimit.ErrExceedsLimit) {
		exceedsLimit.Write(w)
		return
	}
	a.logUndecided(r, err)
	for _, u := range undecided {
		if errors.Is(err, u.err) {
			u.problem.Status = http.StatusServiceUnavailable
			u.problem.Write(w)
			return
		}
	}
	problem.Problem{Status: http.StatusInternalServerError}.Write(w)
}

func (a *api) logUndecided(r *http.Request, err error) {
	if r.Context().Err() != nil { // a client that left is no failure of the store
		return
	}
	if open, held := a.gate.pass(time.Now()); open {
		a.log.Error("request undecided", "error", err, "suppressed", held)
	}
}

// A gate lets one event pass a second and counts those that it holds back. The zero gate is open.
type gate struct {
	mu   sync.Mutex
	next time.Time
	held int
}

// pass tells whether the event of now passes, and how many were held back before it.
func (g *gate) pass(now time.Time) (open bool, held int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if now.Before(g.next) {
		g.held++
		return false, 0
	}
	held, g.held = g.held, 0
	g.next = now.Add(time.Second)
	return true, held
}
