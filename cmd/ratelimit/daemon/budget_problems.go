package daemon

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/httplimit/problem"
)

// problemDocs is the address of the documentation of problems that are not errors of the module.
const problemDocs = "https://github.com/truewindow/ratelimit/blob/main/docs/daemon.md#"

// unprocessable returns the answer to a request that has the right form and can never be decided.
func unprocessable(typ, title, detail string) *problem.Problem {
	return &problem.Problem{
		Type: typ, Title: title, Status: http.StatusUnprocessableEntity, Detail: detail,
	}
}

var (
	duplicateClaims = unprocessable(driverDocs+"ErrInvalid",
		"Two claims on one limit and key", "Two claims name the same limit and key.")
	tooManyUnits = unprocessable(driverDocs+"ErrInvalid", "Too many units",
		fmt.Sprintf("A claim would have more than %d units in all.", driver.MaxUnits))
	notTogether = unprocessable(problemDocs+"claims-not-together", "Claims not decided together",
		"The store cannot decide these claims together: on a cluster they need the same key, or "+
			"keys with the same tag, as the parameter tag of --store defines it. Nothing was "+
			"recorded.")
	invalidToken = unprocessable(errorDocs+"ErrInvalidToken", "Invalid token",
		"The token is not one that POST /v1/reserve, /v1/extend or /v1/acquire has returned.")
	unknownToken = unprocessable(errorDocs+"ErrUnknownLimit", "Unknown limit",
		"The token names a limit that this daemon does not have.")
	notALease = unprocessable(problemDocs+"wrong-kind", "Wrong kind of limit",
		"The token is one of a reservation: settle it with POST /v1/commit or POST /v1/cancel.")
	alreadySettled = &problem.Problem{
		Type: problemDocs + "already-settled", Title: "Already settled",
		Status: http.StatusConflict,
		Detail: "An earlier request settled the token, the key was reset, or the token is more " +
			"than a day old. This request changed nothing.",
	}
	queueFull = &problem.Problem{
		Type: errorDocs + "ErrQueueFull", Title: "Too many waiting requests",
		Status: http.StatusServiceUnavailable,
		Detail: "Too many requests wait for this key already. Nothing was recorded.",
	}
	corruptBudget = &problem.Problem{
		Type: driverDocs + "ErrCorruptState", Title: "Stored state is corrupt",
		Status: http.StatusServiceUnavailable,
		Detail: "The stored state of a key of this request cannot be read. Nothing was recorded. " +
			"POST /v1/reset with the limit and the key removes it.",
	}
	unknownSettlement = &problem.Problem{
		Type: driverDocs + "ErrOutcomeUnknown", Title: "Outcome unknown",
		Status: http.StatusServiceUnavailable,
		Detail: "The store did not answer in time, so the token may be settled or not. Send it " +
			"again: nothing is settled twice.",
	}
	unavailableSettlement = &problem.Problem{
		Type: driverDocs + "ErrUnavailable", Title: "Store unavailable",
		Status: http.StatusServiceUnavailable,
		Detail: "The store is unavailable. Nothing was settled; send the token again.",
	}
)

// unknownLimit is the answer to a request that names a limit which the daemon does not have.
func unknownLimit(where string) *problem.Problem {
	return unprocessable(errorDocs+"ErrUnknownLimit", "Unknown limit",
		where+` names a limit that this daemon does not have.`)
}

func wrongKind(detail string) *problem.Problem {
	return unprocessable(problemDocs+"wrong-kind", "Wrong kind of limit", detail)
}

// exceeds is the answer to a claim that can never be admitted.
func exceeds(where string, l ratelimit.Limit) *problem.Problem {
	p := exceedsLimit
	p.Detail = fmt.Sprintf("%s is more than the limit %q ever admits, which is %d.",
		where, l.Name, l.Max)
	return &p
}

// failClaims answers a request about budgets that the limiters could not decide.
func (a *api) failClaims(
	w http.ResponseWriter, r *http.Request, err error, claims ...ratelimit.Claim,
) {
	switch {
	case errors.Is(err, ratelimit.ErrNotHeld):
		alreadySettled.Write(w)
	case errors.Is(err, ratelimit.ErrInvalid):
		tooManyUnits.Write(w)
	case errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, driver.ErrNoScript):
		notTogether.Write(w)
	case errors.Is(err, ratelimit.ErrQueueFull):
		a.logUndecided(r, err, claims)
		queueFull.Write(w)
	case errors.Is(err, driver.ErrCorruptState):
		a.logUndecided(r, err, claims)
		corruptBudget.Write(w)
	default:
		a.fail(w, r, err, claims...)
	}
}

// failSettlement answers a settlement that failed.
func (a *api) failSettlement(
	w http.ResponseWriter, r *http.Request, err error, claims []ratelimit.Claim,
) {
	switch {
	case errors.Is(err, ratelimit.ErrOutcomeUnknown):
		a.logUndecided(r, err, claims)
		unknownSettlement.Write(w)
	case driver.IsOutage(err):
		a.logUndecided(r, err, claims)
		unavailableSettlement.Write(w)
	default:
		a.failClaims(w, r, err, claims...)
	}
}
