package ratelimit

import (
	"context"
	"fmt"
	"time"
)

// A Store keeps algorithm state by key and runs steps on it atomically. It is the contract for those who
// write a backend; those who limit use a [Limiter]. Package conformance proves every rule below by name.
//
// Identity
//
//   - A state belongs to the key, the limit's name and the algorithm's name, and to nothing else: the same three are the same
//     history, whatever Max, Window or other parameter, and any two that differ in one of the three share nothing.
//   - Keys are arbitrary bytes, given by users' users: a store isolates them whatever they hold, and never writes one to an error
//     or a log.
//
// Decisions
//
//   - The store calls Step with the state, its own clock and the demand, and returns exactly Step's Result.
//   - Steps on one state are atomic and linearizable, also across processes that share the store.
//   - A look and a refusal write nothing: when Step returns keep == 0 the stored state does not change, its time to
//     live included. (Step returns another keep for one only after the clock has stepped back by more than a Window.)
//   - TakeAll is atomic over its states: all demands are admitted, or none leaves a trace. All are
//     evaluated even after one is refused, and when one is, each Result is that of [Demand.Look].
//   - A refusal is a Result, never an error.
//
// Time
//
//   - The store owns the clock: microseconds since the Unix epoch, one reading for a call, the same clock for all who share
//     the store.
//   - Expiry is only garbage collection: a state is forgotten no sooner than keep after the step that returned
//     it, and whether a state that has run out was forgotten yet changes no decision.
//
// Errors
//
//   - Take begins with [CheckTake] and TakeAll with [CheckTakeAll]: what they refuse is returned as it is, before any I/O.
//   - An error means undecided. ErrUnavailable says that nothing was recorded; ErrOutcomeUnknown that the demand was sent and may
//     have been recorded. A store never sends a demand twice once it may have been received.
//   - Beside an error that wraps ErrUnavailable the Result is [Policy.Undecided] of the policy that the store was made with, if it was made with
//     one. A [Limiter] goes by it.
//   - A negative keep means that the state is not one the algorithm wrote: the store writes nothing and returns ErrCorruptState.
//
// Concurrency
//
//   - All methods are safe for simultaneous use. They return when the context ends, at the latest by the store's own deadline.
//
// There are no optional methods and nothing asserts the type of a store, so a decorator forwards two methods and loses nothing: package
// layer has some.
type Store interface {
	// Take decides one demand.
	Take(ctx context.Context, d Demand) (Result, error)

	// TakeAll decides several demands as one: all are admitted, or none leaves a trace. out[i] is set to
	// the Result of ds[i]; it has the same length. A store that cannot decide these demands
	// together (Redis Cluster, keys of several slots) returns an error that wraps [errors.ErrUnsupported] before anything was written.
	// The store keeps neither slice.
	TakeAll(ctx context.Context, ds []Demand, out []Result) error
}

// Op is what a demand asks for.
type Op uint8

const (
	// Take admits and records N units, or refuses and records nothing.
	Take Op = iota
	// Look answers what Take would, and records nothing; Remaining is before taking.
	Look
	// Force records N units whether they fit or not, and is always allowed. N may exceed Max.
	Force
	// GiveBack removes up to N units from the record with the stamp At, whoever put them there: never more than the record
	// still holds, and nothing after the record has left the window. It is always allowed.
	GiveBack
	// Reset forgets the state. It is always allowed.
	Reset

	numOps
)

var opNames = [numOps]string{"take", "look", "force", "giveback", "reset"}

// String returns the name of the operation, such as "take".
func (o Op) String() string {
	if o >= numOps {
		return fmt.Sprintf("op(%d)", uint8(o))
	}
	return opNames[o]
}

// A Demand is one (key, algorithm, n) to be decided.
type Demand struct {
	Key       string    // who or what is limited: any bytes, at least one
	Algorithm Algorithm // the rule that decides
	Op        Op        // zero is Take
	Policy    Policy    // what the caller wants when the store is away; zero leaves it to the store
	N         int64     // units, from 1 to MaxUnits; ignored by Reset
	At        int64     // GiveBack only: Result.At of the admission that the units go back to
}

// Step runs d's algorithm on a state; see [Algorithm].
func (d Demand) Step(state []byte, now int64) (next []byte, keep time.Duration, res Result) {
	return d.Algorithm.Step(state, now, d)
}

// Look runs the step that tells how d stands without deciding it: that of a Look for N units, or for one unit if d gives
// back, forces or resets, which is always allowed. It is how a store looks at all demands of a TakeAll before it takes any,
// and how a TakeAll that is refused is answered. To a Reset a corrupt state is an empty one. Like every Look it returns keep == 0, but where the clock has stepped back.
func (d Demand) Look(state []byte, now int64) (next []byte, keep time.Duration, res Result) {
	look, always := d, d.Op > Look
	look.Op = Look
	if always {
		look.N, look.At = 1, 0
	}
	next, keep, res = d.Algorithm.Step(state, now, look)
	if keep < 0 && d.Op == Reset {
		_, _, res = d.Algorithm.Step(nil, now, d)
		return state, 0, res
	}
	if always {
		res.Allowed, res.RetryAfter = true, 0
	}
	return next, keep, res
}

// CheckTake reports why a store must not decide d: an error that wraps [ErrInvalidDemand], [ErrInvalidLimit] or [ErrExceedsLimit],
// or, when ctx has ended, [ErrUnavailable] and the context's error.
func CheckTake(ctx context.Context, d Demand) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return d.check()
}

// CheckTakeAll is [CheckTake] for all of ds. It also reports [ErrDuplicateDemand], and [ErrInvalidDemand] when ds is empty or out
// has another length.
func CheckTakeAll(ctx context.Context, ds []Demand, out []Result) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if len(ds) == 0 || len(ds) != len(out) {
		return fmt.Errorf("%w: %d demands with room for %d results", ErrInvalidDemand, len(ds), len(out))
	}
	for i := range ds {
		if err := ds[i].check(); err != nil {
			return err
		}
	}
	return checkDistinct(ds)
}

func (d *Demand) check() error {
	switch {
	case d.Key == "":
		return fmt.Errorf("%w: empty key", ErrInvalidDemand)
	case d.Algorithm == nil:
		return fmt.Errorf("%w: no algorithm", ErrInvalidDemand)
	case d.Op >= numOps:
		return fmt.Errorf("%w: unknown %v", ErrInvalidDemand, d.Op)
	case d.Op != Reset && (d.N < 1 || d.N > MaxUnits):
		return fmt.Errorf("%w: %d units are not between 1 and %d", ErrInvalidDemand, d.N, MaxUnits)
	}
	limit := d.Algorithm.Limit()
	if limit.Max < 1 || limit.Max > MaxUnits || limit.Window < MinWindow || limit.Window > MaxWindow {
		return limit.Validate()
	}
	if d.N > limit.Max && d.Op <= Look {
		return fmt.Errorf("%w: %d units, and %v admits at most %d", ErrExceedsLimit, d.N, limit, limit.Max)
	}
	return nil
}

// maxPairwise is the number of demands up to which comparing all pairs is cheaper than building a set.
const maxPairwise = 16

func checkDistinct(ds []Demand) error {
	if len(ds) <= maxPairwise {
		for i := range ds {
			for j := range i {
				if ds[i].Key == ds[j].Key && historyOf(ds[i].Algorithm) == historyOf(ds[j].Algorithm) {
					return duplicate(ds[i])
				}
			}
		}
		return nil
	}
	type state struct {
		key string
		history
	}
	seen := make(map[state]struct{}, len(ds))
	for i := range ds {
		s := state{ds[i].Key, historyOf(ds[i].Algorithm)}
		if _, ok := seen[s]; ok {
			return duplicate(ds[i])
		}
		seen[s] = struct{}{}
	}
	return nil
}

// history is what, beside the key, tells two states apart.
type history struct{ limit, algorithm string }

func historyOf(a Algorithm) history { return history{a.Limit().Name, a.Name()} }

func duplicate(d Demand) error {
	return fmt.Errorf("%w: limit %q", ErrDuplicateDemand, d.Algorithm.Limit().Name)
}

// An Algorithm is a rule as a pure state machine. Values are immutable, comparable with == and hold their own parameters; package
// algorithm has the ones that come with this module.
type Algorithm interface {
	// Name names the encoding of the state and is part of the stored key. A new encoding gets a new name.
	Name() string

	// Limit returns the limit, with its name filled in.
	Limit() Limit

	// Validate reports, as an error that wraps ErrInvalidLimit, which parameter is out of range. New calls it.
	Validate() error

	// Step decides d on a state.
	//
	// Step is pure: no clock, no I/O, no randomness. It is total: whatever the state and the demand, it does not panic.
	// now is in microseconds since the Unix epoch on the store's clock, from 0 to the year 2112, and may be earlier than in the step before.
	// An empty state is a key without history. d.Key is ignored and d.Algorithm is the receiver.
	//
	// keep > 0 means: store next, and forget it no sooner than keep from now; with an empty next: delete the state.
	// keep == 0 means: write nothing; state is then byte for byte what it was.
	// keep < 0 means: state is not one that this Name writes; nothing may be written.
	// Unless keep == 0, next may reuse the array of state, and the store may not use state again. A store that may have to undo
	// first looks at all and then takes; one that compares and swaps passes a copy.
	//
	// A state written under other parameters is accepted: limits change in production, and a change takes
	// effect at once.
	Step(state []byte, now int64, d Demand) (next []byte, keep time.Duration, res Result)

	// Script returns the same step for servers that run Lua. The zero Script means that there is none.
	Script() Script
}

// A Script is Step for servers that run Lua: a step function, not a free-standing script. Package algorithm has the frame
// that reads the clock, runs steps and commits what they write.
type Script struct {
	// Name is the name of Source. The same name is the same Source.
	Name string
	// Source is Lua 5.1 that defines "local function step(key, tail, now, op, n, at, args, pos)" and is constant for the algorithm's
	// type. docs/writing-an-algorithm.md tells what step receives and returns.
	Source string
	// Args appends the parameters of d.Algorithm that step finds in args, each below 2^53. It must not keep dst.
	Args func(dst []int64, d Demand) []int64
	// Sums says that equal Takes of one instant add up. A Take of n units was admitted, and one of k·n units after it is too, with the same
	// At and ResetAfter and with k·n less Remaining: then k Takes of n units in its place are all admitted with that At and ResetAfter, each with n
	// less Remaining than the one before, and leave the same state. So a few steps decide any number of them.
	// False is always right.
	Sums bool
}

// Source tells where a decision was made.
type Source uint8

// The sources.
const (
	SourceStore  Source = iota // the store's state
	SourceCache                // a refusal that the store gave before and that still holds
	SourceLocal                // the memory of this process, while the store is away
	SourceOpen                 // nobody: the store is away, and the policy is [FailOpen]
	SourceClosed               // nobody: the store is away, and no policy lets the demand pass

	numSources
)

var sourceNames = [numSources]string{"store", "cache", "local", "open", "closed"}

// String returns "store", "cache", "local", "open" or "closed".
func (s Source) String() string {
	if s >= numSources {
		return fmt.Sprintf("source(%d)", uint8(s))
	}
	return sourceNames[s]
}

// A Result is what was decided.
type Result struct {
	// Allowed tells whether the demand was admitted; for Look, whether it would be.
	Allowed bool
	// Source tells where the decision was made. A refusal from SourceCache is one that the store gave before, to the same demand or to one for
	// fewer units, and that still holds: RetryAfter and ResetAfter are never too long, but may be too short, and Remaining and At are those of
	// the refusal before. A decision from SourceLocal is about the share of the limit that this process has while the store is away. One from
	// SourceOpen or SourceClosed is the policy's: of its numbers only Limit is known, the others are 0.
	Source Source
	// Limit is the Max of the limit that decided.
	Limit int64
	// Remaining is the number of units that could be taken now: after an admission without those it took, never below 0.
	Remaining int64
	// RetryAfter is zero when allowed. When refused, the same demand is admitted after exactly this long, if nothing else is
	// admitted meanwhile, and not one microsecond sooner (at a Resolution of 1µs).
	RetryAfter time.Duration
	// ResetAfter is how long it takes, with nothing else admitted, until all of the limit is available. It is never too short; after units
	// were given back it may be too long. Zero means that all is available now.
	ResetAfter time.Duration
	// At is the stamp of the decision: of an admission, the stamp of its record, which GiveBack wants.
	At int64
}

// Binding returns the index of the result that stands for all of them, one result a limit of a demand on several limits: a refused
// one if there is one, and among those the one that takes longest to retry; else the one with the least remaining. Among equals it is
// the one with the least remaining, then the one that takes longest to reset, then the first. It panics if results is empty.
func Binding(results []Result) int {
	best := 0
	for i := 1; i < len(results); i++ {
		if binds(results[i], results[best]) {
			best = i
		}
	}
	_ = results[best]
	return best
}

func binds(a, b Result) bool {
	switch {
	case a.Allowed != b.Allowed:
		return !a.Allowed
	case a.RetryAfter != b.RetryAfter:
		return a.RetryAfter > b.RetryAfter
	case a.Remaining != b.Remaining:
		return a.Remaining < b.Remaining
	}
	return a.ResetAfter > b.ResetAfter
}
