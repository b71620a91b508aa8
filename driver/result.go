package driver

import (
	"fmt"
	"time"
)

// Source says where a decision was made.
type Source uint8

// The sources.
const (
	SourceStore Source = iota // the store's state
	SourceCache               // an earlier refusal of the store that still holds
	SourceLocal               // the memory of this process, while the store is unavailable
	SourceOpen                // the policy FailOpen, while the store is unavailable
	SourceLease               // units that this process has taken from the store ahead

	numSources
)

var sourceNames = [numSources]string{"store", "cache", "local", "open", "lease"}

// String returns "store", "cache", "local", "open" or "lease", or "source(9)" for an unknown one.
func (s Source) String() string {
	if s >= numSources {
		return fmt.Sprintf("source(%d)", uint8(s))
	}
	return sourceNames[s]
}

// A Result is a decision.
type Result struct {
	// Allowed reports whether the demand was admitted; for OpPeek, whether it would be.
	Allowed bool
	// Source says where the decision was made.
	//
	//   - A refusal from SourceCache was made earlier by the store, for the same demand or for one
	//     of fewer units, and still holds. Its RetryAfter and ResetAfter are never too long but may
	//     be too short. Its Remaining is that of the earlier refusal: never too high, except that
	//     calls which are still in flight may not be counted.
	//   - The results of a refused TakeAll are from SourceCache all together or not at all: those
	//     that are Allowed were Allowed earlier too, for as many units or more, and their Remaining
	//     and ResetAfter are not too high either.
	//   - A decision from SourceLocal is about the share of the limit that this process has while
	//     the store is unavailable.
	//   - One from SourceOpen was made by the policy alone: only its Limit and Units are set.
	//   - One from SourceLease has numbers that may be a lead of the layer old. If it is a refusal,
	//     its RetryAfter is at least the time until the process asks the store again. It may stand
	//     beside results of any other source.
	Source Source
	// Limit is the limit that decided. From SourceLocal its Max is the share of this process.
	Limit Limit
	// Remaining is the number of units that are free now, after the decision; never negative.
	Remaining int64
	// Units is the number of units that were taken, held, renewed or recorded: 0 if refused, of a
	// peek and a reset, if there was no hold to renew or settle, and for calls in flight that are
	// settled.
	Units int64
	// RetryAfter is zero if allowed. If refused, the same demand is admitted after exactly this
	// long, provided that nothing else is admitted meanwhile, and not one microsecond sooner (at a
	// Resolution of 1µs). That is at most one Window, two under a SlidingWindowCounter; one Window
	// more after the clock has stepped back; under a TokenBucket also the time in which the units
	// beyond Max are refilled, which were forced or taken under a larger Max; and with holds until
	// they have timed out.
	RetryAfter time.Duration
	// ResetAfter is how long it takes, with nothing else admitted, until all units are free. Zero
	// means that all are free now.
	ResetAfter time.Duration
}
