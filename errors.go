package ratelimit

import (
	"errors"
	"fmt"
)

// Errors of a call that cannot be decided, whatever the state of the store. They are returned
// before any I/O; test for them with [errors.Is].
var (
	// ErrInvalidLimit says that a limiter or its limits are out of range: no store, no limit, a Max or a Window outside
	// of the bounds of [Limit.Validate], or an algorithm's own parameter.
	ErrInvalidLimit = errors.New("ratelimit: invalid limit")

	// ErrInvalidDemand says that a demand is out of range: no key, no algorithm, an unknown Op, or a number
	// of units that is not between 1 and [MaxUnits].
	ErrInvalidDemand = errors.New("ratelimit: invalid demand")

	// ErrExceedsLimit says that a demand asks for more units than the limit admits in one Window. It can never be
	// admitted, so there is no time to wait for.
	ErrExceedsLimit = errors.New("ratelimit: demand exceeds the limit")

	// ErrDuplicateDemand says that two demands of one TakeAll (or two limits of one Limiter) have the same state: the same key,
	// limit name and algorithm name.
	ErrDuplicateDemand = errors.New("ratelimit: two demands on one state")

	// ErrNoScript says that a store on a server cannot run an algorithm that has no script. It wraps
	// [errors.ErrUnsupported].
	ErrNoScript = fmt.Errorf("ratelimit: algorithm has no script: %w", errors.ErrUnsupported)
)

// Errors of a store. All of them wrap ErrUnavailable: the demand is undecided, and the caller's policy decides.
var (
	// ErrUnavailable says that the demand is undecided and, unless the error is also [ErrOutcomeUnknown], that nothing was recorded.
	ErrUnavailable = errors.New("ratelimit: store unavailable")

	// ErrOutcomeUnknown says that the demand was sent and no answer came: its units may have been
	// recorded or not. It must not be repeated by anyone who cannot bear to count it twice. It wraps [ErrUnavailable].
	ErrOutcomeUnknown = fmt.Errorf("%w: outcome unknown", ErrUnavailable)

	// ErrCapacity says that a bounded store has no room for a new key. It wraps [ErrUnavailable].
	ErrCapacity = fmt.Errorf("%w: no room for another key", ErrUnavailable)

	// ErrClosed says that the store was closed. It wraps [ErrUnavailable].
	ErrClosed = fmt.Errorf("%w: store is closed", ErrUnavailable)

	// ErrCorruptState says that the stored state is not one that the algorithm wrote. No unit was recorded; a Reset of
	// the key removes it. It wraps [ErrUnavailable].
	ErrCorruptState = fmt.Errorf("%w: stored state is corrupt", ErrUnavailable)
)
