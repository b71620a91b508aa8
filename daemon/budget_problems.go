package daemon

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/internal/problem"
)

// problemDocs is where problems are documented that are no error of the module.
const problemDocs = "https://github.com/truewindow/ratelimit/blob/main/docs/daemon.md#"

// unprocessable returns the answer to a request of the right form that no state can decide.
func unprocessable(typ, title, detail string) *problem.Problem {
	return &problem.Problem{
		Type: typ, Title: title, Status: http.StatusUnprocessableEntity, Detail: detail,
	}
}

var (
	duplicateClaims = unprocessable(errorDocs+"ErrDuplicateDemand", "Two claims on one budget",
		"Two claims are of the same limit and key.")
	tooManyUnits = unprocessable(errorDocs+"ErrInvalidDemand", "Too many units",
		fmt.Sprintf("A claim would have more than %d units in all.", ratelimit.MaxUnits))
	notTogether = unprocessable(problemDocs+"claims-not-together", "Claims not decided together",
		"The server cannot decide these claims as one: on a cluster they need the same key, "+
			"or keys of one group, as the parameter tag of --store says. Nothing was recorded.")
	invalidToken = unprocessable(errorDocs+"ErrInvalidToken", "Invalid token",
		"The token is not one that POST /v1/reserve, /v1/extend or /v1/acquire has returned.")
	unknownToken = unprocessable(errorDocs+"ErrUnknownLimit", "Unknown limit",
		"The token is of a limit that this daemon does not have.")
	tokenFull = unprocessable(problemDocs+"too-many-extensions", "Too many extensions",
		"The token has no room for another extension. Nothing was recorded; commit it.")
	notALease = unprocessable(problemDocs+"wrong-kind", "Wrong kind of limit",
		"The token is of a reservation, which is settled by POST /v1/commit or POST /v1/cancel.")
	alreadySettled = &problem.Problem{
		Type: problemDocs + "already-settled", Title: "Already settled",
		Status: http.StatusConflict,
		Detail: "A request before this one has settled the token, or has tried to with " +
			"an unknown outcome. This one changed nothing.",
	}
	queueFull = &problem.Problem{
		Type: errorDocs + "ErrQueueFull", Title: "Too many requests wait",
		Status: http.StatusServiceUnavailable,
		Detail: "Too many requests wait for this key. Nothing was recorded.",
	}
	corruptBudget = &problem.Problem{
		Type: errorDocs + "ErrCorruptState", Title: "Stored state is corrupt",
		Status: http.StatusServiceUnavailable,
		Detail: "What is stored for a key of this request is not readable. Nothing was recorded. " +
			"POST /v1/reset removes it for the limits of --limit, POST /v1/unblock for a block.",
	}
	unknownSettlement = &problem.Problem{
		Type: errorDocs + "ErrOutcomeUnknown", Title: "Outcome unknown",
		Status: http.StatusServiceUnavailable,
		Detail: "The store did not answer in time. The token may be settled or not; at worst its " +
			"units stay charged until they leave the window. Sending it again settles nothing " +
			"twice.",
	}
	unavailableSettlement = &problem.Problem{
		Type: errorDocs + "ErrUnavailable", Title: "Store unavailable",
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
	p.Detail = fmt.Sprintf("%s asks for more units than the limit %q ever admits, which is %d.",
		where, l.Name, l.Max)
	return &p
}

// failClaims answers a request about budgets that the limiters could not decide.
func (a *api) failClaims(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, ratelimit.ErrDuplicateDemand):
		duplicateClaims.Write(w)
	case errors.Is(err, ratelimit.ErrInvalidDemand):
		tooManyUnits.Write(w)
	case errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, ratelimit.ErrNoScript):
		notTogether.Write(w)
	case errors.Is(err, ratelimit.ErrQueueFull):
		a.logUndecided(r, err)
		queueFull.Write(w)
	case errors.Is(err, ratelimit.ErrCorruptState):
		a.logUndecided(r, err)
		corruptBudget.Write(w)
	default:
		a.fail(w, r, err)
	}
}

// failSettlement answers a settlement that failed.
func (a *api) failSettlement(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, ratelimit.ErrOutcomeUnknown):
		a.logUndecided(r, err)
		unknownSettlement.Write(w)
	case errors.Is(err, ratelimit.ErrUnavailable) && !errors.Is(err, ratelimit.ErrCapacity) &&
		!errors.Is(err, ratelimit.ErrCorruptState):
		a.logUndecided(r, err)
		unavailableSettlement.Write(w)
	default:
		a.failClaims(w, r, err)
	}
}
