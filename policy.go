package ratelimit

import "fmt"

// A Policy says what a [Limiter] does when the store is unavailable ([driver.IsOutage]). The zero
// Policy is FailClosed.
type Policy uint8

// The policies.
const (
	// FailClosed returns the error.
	FailClosed Policy = iota
	// FailOpen admits the demand without an error, with a Result of [SourceOpen]. Nothing is
	// recorded: there is no limit while the store is unavailable. FailOpen applies to takes, Force,
	// peeks and reservations, but not to Reset and settlements, and not to a call whose context has
	// ended, since callers could evade the limit by short deadlines.
	FailOpen
	// FailWait returns the error, except that the waits (Wait, WaitAll, Acquire and their like)
	// retry until the store is available, or the context ends or would end during the next pause.
	// They retry after [driver.ErrContended] too. Pauses grow from about 10 ms to a second. Two
	// errors end a wait all the same: [ErrOutcomeUnknown], since the demand might count twice, and
	// [driver.ErrClosed].
	FailWait

	numPolicies
)

var policyNames = [numPolicies]string{"closed", "open", "wait"}

// String returns "closed", "open" or "wait", or "policy(9)" for an unknown policy.
func (p Policy) String() string {
	if p >= numPolicies {
		return fmt.Sprintf("policy(%d)", uint8(p))
	}
	return policyNames[p]
}
