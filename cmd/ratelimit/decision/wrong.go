package decision

import (
	"fmt"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/driver"
)

// Errors of one request, each in a [RequestError]. They wrap [ratelimit.ErrInvalid], as does
// [driver.ErrExceedsLimit].
var (
	// ErrUnknownLimit means that no limit has the name of the request.
	ErrUnknownLimit = wrong("no limit has the name")
	// ErrMissingEntry means that the rate of the limit that the request names depends on an entry
	// which it does not have.
	ErrMissingEntry = wrong("an entry that decides the rate is missing")
	// ErrNeedsHold means that a limit of calls in flight applies without [Options].Hold and
	// NoInFlight, so that nothing would end the call.
	ErrNeedsHold = wrong("calls in flight have to be held")
	// ErrHoldRange means that Hold is not in the range of [HoldRange].
	ErrHoldRange = wrong("the hold is too short or too long")
	// ErrNotAllowed means that [Options].MayUse does not allow a limit that applies.
	ErrNotAllowed = wrong("the caller may not use the limit")
	// ErrTooManyHeld means that an ID would have more than [Options].MostHeld limits and keys. It
	// is in no RequestError.
	ErrTooManyHeld = wrong("too many limits and keys hold units")
)

func wrong(text string) error { return fmt.Errorf("%w demand: %s", ratelimit.ErrInvalid, text) }

// A RequestError is what is wrong with one request of a call, of which nothing was charged.
type RequestError struct {
	Request int              // its index
	Limit   ratelimit.Limit  // only with a name if the rate is not known
	Entry   string           // the one that is missing
	Holder  driver.Algorithm // of an ErrHoldRange
	Err     error
}

// Error names the limit and no key.
func (e *RequestError) Error() string {
	return fmt.Sprintf("limit %q: %v", e.Limit.Name, e.Err)
}

// Unwrap returns Err.
func (e *RequestError) Unwrap() error { return e.Err }

// wrong returns an error of the first request of u.
func (u *use) wrong(err error) error {
	return &RequestError{Request: u.request, Limit: u.status.Result.Limit,
		Holder: u.variant.Algorithm, Err: err}
}

// matchNamed adds the match of a request that names a limit.
func (p *plan) matchNamed(request int, r *Request) error {
	m, missing, ok := p.inForce.set.Named(r.Limit, r.Key, r.Descriptor)
	decides := !p.opts.Peek && !p.opts.Force
	wrong := RequestError{Request: request, Limit: ratelimit.Limit{Name: r.Limit}, Entry: missing}
	switch {
	case !ok:
		wrong.Err = ErrUnknownLimit
	case missing != "" && decides && r.Override == nil:
		wrong.Err = ErrMissingEntry
	case r.N > driver.MaxUnits:
		wrong.Limit.Max, wrong.Err = m.Rate.Units, driver.ErrExceedsLimit
	default:
		p.matches = append(p.matches, m)
		return nil
	}
	return &wrong
}
