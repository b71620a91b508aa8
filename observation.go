package ratelimit

import (
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// An Observation is one call of a method of a [Limiter] or [Reservation] and its outcome, as the
// caller gets it. See [Limiter.WithObserver]. Holds that are lost or late are observed too, by
// themselves; see Open.
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
	// Err is the error that the caller gets, except [ErrNotHeld], or nil. If it wraps
	// [ErrUnavailable], the store left the demand undecided and the policy did not admit it.
	Err error
	// Elapsed is how long the call took, Waited included.
	Elapsed time.Duration
	// Waited is how long a wait slept or was behind others in the queue; 0 for other calls.
	Waited time.Duration
	// Open is the change in the number of open holds of this process under each limit, 1, 0 or -1;
	// nil if there is none. A hold is open from the first answer that says that it is held until it
	// is settled, lost or left to a token. A reservation that was resumed is open from its first
	// renewal or extension.
	//
	// If Open is set and Admitted is not, no call was made: this is an OpSettle of holds that have
	// ended by themselves, and Err says why:
	//   - [ErrNotHeld]: they are lost. The store did not have them any more, or nobody settles them:
	//     the program has dropped the reservation, the store is closed, or a Cancel has failed for
	//     the last time.
	//   - [context.DeadlineExceeded]: they were late. Their time-out was over by this process's
	//     clock when they were renewed, extended or settled, so others may have had their units.
	//     If they are held again, that opens them.
	//   - nil: they are left to a token.
	Open []int
}
