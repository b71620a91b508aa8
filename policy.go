package ratelimit

import (
	"errors"
	"fmt"
)

// A Policy says what becomes of a demand that the store leaves undecided, since it is away: which errors those are, [ErrUnavailable]
// tells. The choice is between what the limit protects and those whom it keeps out, so whoever makes a store that can be away has
// to choose. A limiter may choose otherwise ([Limiter.With]).
type Policy uint8

// The policies. Zero is none of them.
const (
	// FailClosed refuses. The caller gets the error, and with it a Result of [SourceClosed].
	FailClosed Policy = iota + 1
	// FailOpen admits what asks to be admitted, with a Result of [SourceOpen] and no error. Nothing is recorded: there is no limit while the store is
	// away. A state that is corrupt is refused nevertheless ([ErrCorruptState]), or there would be none for good.
	FailOpen
	// FailLocal decides from the memory of this process, with a Result of [SourceLocal]. It takes a store that can, which is one inside
	// of layer.Degraded; any other refuses as with FailClosed.
	FailLocal

	numPolicies
)

var policyNames = [numPolicies]string{"none", "closed", "open", "local"}

// String returns "closed", "open" or "local".
func (p Policy) String() string {
	if p >= numPolicies {
		return fmt.Sprintf("policy(%d)", uint8(p))
	}
	return policyNames[p]
}

// Valid reports whether p is one of the policies.
func (p Policy) Valid() bool { return p > 0 && p < numPolicies }

// ParsePolicy reads what [Policy.String] writes. An error wraps [ErrInvalidLimit].
func ParsePolicy(s string) (Policy, error) {
	for p := FailClosed; p < numPolicies; p++ {
		if s == policyNames[p] {
			return p, nil
		}
	}
	return 0, fmt.Errorf("%w: policy %q is none of closed, open and local", ErrInvalidLimit, s)
}

// Undecided returns what p makes of d, which err left undecided: what a store returns beside an error that wraps [ErrUnavailable]. Beside
// any other error, and without a policy, it is the zero Result.
func (p Policy) Undecided(d Demand, err error) Result {
	if !p.Valid() || d.Algorithm == nil || !errors.Is(err, ErrUnavailable) {
		return Result{}
	}
	res := Result{Source: SourceClosed, Limit: d.Algorithm.Limit().Max}
	if p == FailOpen && d.Op <= Force && !errors.Is(err, ErrCorruptState) {
		res.Allowed, res.Source = true, SourceOpen
	}
	return res
}

// UndecidedAll is [Policy.Undecided] for each of ds, as many as out has room for.
func (p Policy) UndecidedAll(ds []Demand, out []Result, err error) {
	for i := range min(len(ds), len(out)) {
		out[i] = p.Undecided(ds[i], err)
	}
}
