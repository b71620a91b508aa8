package ratelimit

import (
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// An Observation is one call of a method of a [Limiter] and its outcome, as the caller gets it. See
// [Limiter.WithObserver].
type Observation struct {
	// Key is user data: do not write it to logs or use it as a label of a metric.
	Key string
	// Op is the operation: OpTake for a wait, OpHold for what reserves, extends or renews, OpSettle
	// for what ends a reservation. With n = 0 a call is observed as an OpPeek for one unit.
	Op driver.Op
	// N is the number of units: of a claim with a Least those that it got, or its Least if it got
	// none. It is 0 for an OpReset, for an OpHold that renews, and for an OpSettle of no units.
	N int64
	// Limits are the limits of the limiter, in the order of New's arguments; those with holds,
	// where only holds are settled, extended or renewed. Do not change them.
	Limits []Limit
	// Results has the result of each limit. After an error they are zero, except that a wait that
	// gave up has its last refusal, unless the store has failed since. They are valid only until
	// the observer returns: copy them to keep them.
	Results []Result
	// Admitted means that there was no error and no limit refused, those of the other claims of the
	// call included. Otherwise nothing was taken.
	Admitted bool
	// Err is the error that the caller gets, or nil. If it wraps [ErrUnavailable], the store left
	// the demand undecided and the policy did not admit it.
	Err error
	// Elapsed is how long the call took, Waited included.
	Elapsed time.Duration
	// Waited is how long a wait slept or was behind others in the queue; 0 for other calls.
	Waited time.Duration
}
