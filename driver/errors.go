package driver

import (
	"errors"
	"fmt"
)

// Errors that are returned before any I/O: nothing was recorded. Test for them with [errors.Is].
var (
	// ErrInvalid means that an argument is wrong, whatever the state of the store: a parameter that
	// is out of range, a demand without a key, or two demands on one state.
	ErrInvalid = errors.New("ratelimit: invalid")

	// ErrExceedsLimit means that a demand is for more units than the limit admits in one Window. It
	// can never be admitted, so waiting does not help.
	ErrExceedsLimit = errors.New("ratelimit: demand exceeds the limit")

	// ErrNoScript means that an algorithm has no [Script], which stores on servers need to run it.
	// It wraps [errors.ErrUnsupported].
	ErrNoScript = fmt.Errorf("ratelimit: algorithm has no script: %w", errors.ErrUnsupported)
)

// Errors of a store. All of them wrap ErrUnavailable: the demand is undecided.
var (
	// ErrUnavailable means that the demand is undecided and, unless the error is also
	// [ErrOutcomeUnknown], that nothing was recorded. If it is an outage, the
	// policy of the limiter decides; see [IsOutage].
	ErrUnavailable = errors.New("ratelimit: store unavailable")

	// ErrOutcomeUnknown means that the demand may have been sent and that its outcome is not known:
	// its units may or may not have been recorded. Repeating the demand may count it twice. It
	// wraps [ErrUnavailable].
	ErrOutcomeUnknown = fmt.Errorf("%w: outcome unknown", ErrUnavailable)

	// ErrCapacity means that a bounded store has no room for the demand. It wraps
	// [ErrUnavailable].
	ErrCapacity = fmt.Errorf("%w: no room for another state", ErrUnavailable)

	// ErrContended means that the store is available, but that the demand was not decided in time
	// because of other calls with its key. It wraps [ErrUnavailable].
	ErrContended = fmt.Errorf("%w: too many calls with the key at once", ErrUnavailable)

	// ErrClosed means that the store was closed. It wraps [ErrUnavailable].
	ErrClosed = fmt.Errorf("%w: store is closed", ErrUnavailable)

	// ErrCorruptState means that the stored state is not one that the algorithm wrote. Nothing was
	// recorded. An OpReset removes the state. It wraps [ErrUnavailable].
	ErrCorruptState = fmt.Errorf("%w: stored state is corrupt", ErrUnavailable)
)

// IsOutage reports whether err, which a store has returned, says that the store is unavailable: err
// wraps [ErrUnavailable], but none of [ErrCapacity], [ErrContended] and [ErrCorruptState], which
// callers could provoke to evade a limit. The error of a call whose own context has ended is no
// outage either; that has to be checked on the context.
func IsOutage(err error) bool {
	return errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrCapacity) &&
		!errors.Is(err, ErrContended) && !errors.Is(err, ErrCorruptState)
}
