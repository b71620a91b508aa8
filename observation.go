package ratelimit

import "time"

// An Observation is one call of a [Limiter]'s method and its outcome, as the caller gets it. See
// [Limiter.WithObserver].
type Observation struct {
	// Key is user data: do not write it to logs or use it as a label of a metric.
	Key string
	// Op is what was asked for; OpTake for a wait. A call for no units is an OpPeek for one, but
	// for an OpGiveBack, which then does nothing.
	Op Op
	// N is the number of units of Op; 0 for an OpReset.
	N int64
	// Limits are the limits of the limiter, in the order of New's arguments. Do not change them.
	Limits []Limit
	// Results has the result of each limit. They are zero beside an error, except that a wait that
	// was given up has its last refusal, if it got one. They are valid until the observer returns.
	Results []Result
	// RefusedByOther means that another claim of the same [AllowAll] or [ReserveAll] was refused,
	// so that nothing was taken, whatever Results say.
	RefusedByOther bool
	// Shadowed has the results that the caller got from the limiter of which this one is the shadow
	// ([Limiter.WithShadow]); nil if it got an error, and in all other observations.
	Shadowed []Result
	// Err is the error that the caller gets, or nil. One that wraps [ErrUnavailable] means that the
	// store left the demand undecided and that the policy does not admit it.
	Err error
	// Elapsed is how long the call took, Waited included.
	Elapsed time.Duration
	// Waited is for how long [Limiter.WaitN] slept or was in the queue behind others.
	Waited time.Duration
}

// Admitted reports whether the caller was told to go ahead: no error, and no limit refused.
func (o Observation) Admitted() bool {
	return o.Err == nil && !o.RefusedByOther && o.Results[Binding(o.Results)].Allowed
}
