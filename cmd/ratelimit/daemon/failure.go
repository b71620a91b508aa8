package daemon

import (
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/httplimit/problem"
)

// errorDocs is the address of the documentation of the module's errors. With the name of an error
// it is the type of a problem.
const errorDocs = "https://pkg.go.dev/github.com/truewindow/ratelimit#"

// driverDocs is errorDocs of the errors that stores return.
const driverDocs = "https://pkg.go.dev/github.com/truewindow/ratelimit/driver#"

var exceedsLimit = problem.Problem{
	Type:   driverDocs + "ErrExceedsLimit",
	Title:  "Demand exceeds the limit",
	Status: http.StatusUnprocessableEntity,
	Detail: `"n" exceeds one of the limits, so it can never be admitted.`,
}

// undecided has the problem for each error of a store, the most specific error first.
var undecided = []struct {
	err     error
	problem problem.Problem
}{
	{ratelimit.ErrOutcomeUnknown, problem.Problem{
		Type:  driverDocs + "ErrOutcomeUnknown",
		Title: "Outcome unknown",
		Detail: "The store did not answer in time. The demand may have been recorded; sending it " +
			"again may count it twice.",
	}},
	{driver.ErrCapacity, problem.Problem{
		Type:   driverDocs + "ErrCapacity",
		Title:  "No room for another key",
		Detail: "The store holds the largest number of keys it may hold. Nothing was recorded.",
	}},
	{driver.ErrCorruptState, problem.Problem{
		Type:  driverDocs + "ErrCorruptState",
		Title: "Stored state is corrupt",
		Detail: "The stored state of this key cannot be read. Nothing was recorded; " +
			"POST /v1/reset removes it.",
	}},
	{ratelimit.ErrUnavailable, problem.Problem{
		Type:   driverDocs + "ErrUnavailable",
		Title:  "Store unavailable",
		Detail: "The store is unavailable. Nothing was recorded.",
	}},
}

// fail answers a request that the limiters of claims could not decide. The cause goes to the log,
// not to the client.
func (a *api) fail(w http.ResponseWriter, r *http.Request, err error, claims ...ratelimit.Claim) {
	if errors.Is(err, ratelimit.ErrExceedsLimit) {
		exceedsLimit.Write(w)
		return
	}
	a.logUndecided(r, err, claims)
	for _, u := range undecided {
		if errors.Is(err, u.err) {
			u.problem.Status = http.StatusServiceUnavailable
			u.problem.Write(w)
			return
		}
	}
	problem.Problem{Status: http.StatusInternalServerError}.Write(w)
}

// logUndecided logs the path and the limits of a request, and no key.
func (a *api) logUndecided(r *http.Request, err error, claims []ratelimit.Claim) {
	open, held := a.gate.pass(time.Now())
	if !open {
		return
	}
	var names []string
	for _, c := range claims {
		for _, l := range c.Limiter.Limits() {
			if !slices.Contains(names, l.Name) {
				names = append(names, l.Name)
			}
		}
	}
	a.log.Error("request undecided", "path", r.URL.Path, "limits", names, "error", err,
		"suppressed", held)
}

// A gate lets one event pass a second and counts those that it suppresses. The zero gate is open.
type gate struct {
	mu   sync.Mutex
	next time.Time
	held int
}

// pass reports whether an event at now passes, and how many were suppressed before it.
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
