package httpapi

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/cmd/ratelimit/envoy"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/httplimit/problem"
)

// The addresses of the documentation of errors of the module, of those that stores return, and of
// problems that are neither. With a name each is the type of a problem.
const (
	errorDocs   = "https://pkg.go.dev/github.com/truewindow/ratelimit#"
	driverDocs  = "https://pkg.go.dev/github.com/truewindow/ratelimit/driver#"
	problemDocs = "https://github.com/truewindow/ratelimit/blob/main/docs/daemon.md#"
)

// unprocessable returns the answer to a request that has the right form and can never be decided.
func unprocessable(typ, title, detail string) *problem.Problem {
	return &problem.Problem{
		Type: typ, Title: title, Status: http.StatusUnprocessableEntity, Detail: detail,
	}
}

var (
	duplicateClaims = unprocessable(driverDocs+"ErrInvalid",
		"Two claims on one limit and key", "Two claims name the same limit and key.")
	invalidID = unprocessable(errorDocs+"ErrInvalidToken", "Invalid id",
		"The id is not one that POST /v1/decide or /v1/renew has returned.")
)

// unknownLimit is the answer to a request that names a limit which the daemon does not have. The
// name is not in it: it may be a user's key in the wrong place.
func unknownLimit(where string) *problem.Problem {
	return unprocessable(errorDocs+"ErrUnknownLimit", "Unknown limit",
		where+` names a limit that this daemon does not have.`)
}

// noLimitOfKey is the answer to a key without a limit, if the configuration has none for it.
var noLimitOfKey = unprocessable(errorDocs+"ErrUnknownLimit", "Unknown limit",
	`No limit of the configuration has "key: [key]": name a limit.`)

func wrongKind(detail string) *problem.Problem {
	return unprocessable(problemDocs+"wrong-kind", "Wrong kind of limit", detail)
}

// exceeds is the answer to units that can never be admitted.
func exceeds(where string, l ratelimit.Limit) *problem.Problem {
	return unprocessable(driverDocs+"ErrExceedsLimit", "Demand exceeds the limit",
		fmt.Sprintf("%s is more than the limit %q ever admits, which is %d.",
			where, l.Name, l.Max))
}

func unavailable(typ, title, detail string) *problem.Problem {
	return &problem.Problem{
		Type: typ, Title: title, Status: http.StatusServiceUnavailable, Detail: detail,
	}
}

var unknownRepeatable = unavailable(driverDocs+"ErrOutcomeUnknown", "Outcome unknown",
	"The store did not answer in time, so the request may have been done or not. Send it again: "+
		"it counts once.")

// failures has the problem for each error of a limiter, the most specific error first.
var failures = []struct {
	err     error
	problem *problem.Problem
}{
	{ratelimit.ErrNotHeld, &problem.Problem{
		Type: problemDocs + "already-settled", Title: "Already settled",
		Status: http.StatusConflict,
		Detail: "An earlier request settled the id, the key was reset, or the id is more than a " +
			"day old. This request changed nothing.",
	}},
	{ratelimit.ErrInvalid, invalidID}, // of an id that names a limit and key twice
	{driver.ErrNoScript, &problem.Problem{Status: http.StatusInternalServerError}},
	{ratelimit.ErrOutcomeUnknown, unavailable(driverDocs+"ErrOutcomeUnknown", "Outcome unknown",
		"The store did not answer in time. The demand may have been recorded; sending it again "+
			"may count it twice.")},
	{driver.ErrCapacity, unavailable(driverDocs+"ErrCapacity", "No room",
		"The store has no room for another key; or it is unavailable, and this process has no "+
			"room, or no share of so many units. Nothing was recorded.")},
	{driver.ErrContended, unavailable(driverDocs+"ErrContended", "Too many requests at once",
		"Too many requests for a key of this request are in progress. Nothing was recorded.")},
	{driver.ErrCorruptState, unavailable(driverDocs+"ErrCorruptState", "Stored state is corrupt",
		"The stored state of a key of this request cannot be read. Nothing was recorded. "+
			"POST /v1/reset with the limit and the key removes it.")},
	{ratelimit.ErrQueueFull, unavailable(errorDocs+"ErrQueueFull", "Too many waiting requests",
		"Too many requests wait for this key already. Nothing was recorded.")},
	{ratelimit.ErrUnavailable, unavailable(driverDocs+"ErrUnavailable", "Store unavailable",
		"The store is unavailable. Nothing was recorded.")},
	{errors.ErrUnsupported, unprocessable(problemDocs+"claims-not-together",
		"Claims not decided together",
		"The store cannot decide these claims together: on a cluster they need the same key, or "+
			"keys with the same tag, as the parameter tag of --store defines it. Nothing was "+
			"recorded.")},
}

// fail returns the problem of a request for a path that is undecided under limits with these names.
// The cause goes to the log, not to the client.
func (a *API) fail(path string, err error, limits func() []string) *problem.Problem {
	p := &problem.Problem{Status: http.StatusInternalServerError}
	for _, f := range failures {
		if errors.Is(err, f.err) {
			p = f.problem
			break
		}
	}
	if p.Status >= http.StatusInternalServerError {
		if ok, suppressed := a.undecided.Pass(time.Now()); ok {
			a.log.Error("request undecided", envoy.WithSetting(err, "path", path,
				"limits", limits(), "error", err, "suppressed", suppressed)...)
		}
	}
	return p
}

// failRepeatable is fail for a query with an ID, which may be sent again.
func (a *API) failRepeatable(q *query, err error, held []ratelimit.Claim) *problem.Problem {
	p := a.fail(q.path, err, func() []string { return heldUnder(held) })
	if errors.Is(err, ratelimit.ErrOutcomeUnknown) {
		return unknownRepeatable
	}
	return p
}

// heldUnder returns the names of the limits of claims, each once.
func heldUnder(claims []ratelimit.Claim) (names []string) {
	for _, c := range claims {
		for _, l := range c.Limiter.Limits() {
			if !slices.Contains(names, l.Name) {
				names = append(names, l.Name)
			}
		}
	}
	return names
}
