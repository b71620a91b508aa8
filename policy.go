package ratelimit

import "fmt"

// A Policy says what a [Limiter] does with a demand that the store leaves undecided because it is
// unavailable, that is with an error that wraps [ErrUnavailable]. It reads and writes itself as
// text: "closed", "open" or "wait".
type Policy uint8

// The policies.
const (
	// FailClosed returns the error.
	FailClosed Policy = iota
	// FailOpen admits the demand without an error, with a Result of [SourceOpen]. Nothing is
	// recorded: there is no limit while the store is unavailable. It applies to takes, forced ones
	// included, and to peeks, not to a reset or to units that are given back. Two errors are
	// returned nevertheless, because clients could cause them to avoid the limit: that of a corrupt
	// state ([ErrCorruptState]), and that of a call whose context has ended.
	FailOpen
	// FailWait returns the error, except that Wait and WaitN ask again until the store is available
	// or the context ends, after pauses that grow from about 10 ms to a second. Three errors end a
	// wait nevertheless: that of an unknown outcome ([ErrOutcomeUnknown]), since the demand might
	// count twice, of a corrupt state ([ErrCorruptState]) and of a closed store ([ErrClosed]).
	FailWait

	numPolicies
)

var policyNames = [numPolicies]string{"closed", "open", "wait"}

// String returns "closed", "open" or "wait".
func (p Policy) String() string {
	if p >= numPolicies {
		return fmt.Sprintf("policy(%d)", uint8(p))
	}
	return policyNames[p]
}

// MarshalText returns "closed", "open" or "wait". An error wraps [ErrInvalidOptions].
func (p Policy) MarshalText() ([]byte, error) {
	if p >= numPolicies {
		return nil, fmt.Errorf("%w: unknown %v", ErrInvalidOptions, p)
	}
	return []byte(policyNames[p]), nil
}

// UnmarshalText sets p to the policy that [Policy.MarshalText] writes as text. After an error,
// which wraps [ErrInvalidOptions], p is unchanged.
func (p *Policy) UnmarshalText(text []byte) error {
	for i, name := range policyNames {
		if string(text) == name {
			*p = Policy(i)
			return nil
		}
	}
	return fmt.Errorf("%w: the policy %q is not closed, open or wait", ErrInvalidOptions, text)
}
