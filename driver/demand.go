package driver

import (
	"fmt"
	"slices"
	"time"
)

// Op is what a demand asks for.
type Op uint8

const (
	// OpTake admits and records N units, or refuses and records nothing.
	OpTake Op = iota
	// OpPeek returns what OpTake would, and records nothing. Remaining does not count the N units.
	OpPeek
	// OpForce records N units whether they fit or not, and is always allowed. N may exceed Max.
	OpForce
	// OpReset deletes the state, holds included. It is always allowed.
	OpReset
	// OpHold makes ID hold N units for HoldTimeout. Units that are held count against the limit,
	// and are not recorded. It is admitted if N fit beside all else, or if ID holds N or more. It
	// never reduces the units that ID holds, nor the time for which it holds them, so it may be
	// repeated. With N = 0 it is always allowed: it renews what ID holds, or held until it timed
	// out, whether that fits or not, and does nothing for an ID without a hold. It needs a
	// [Holder].
	OpHold
	// OpSettle ends the hold of ID and records N units, whether they fit or not; 0 records none. It
	// is always allowed. Without a hold of ID it records nothing, so it may be repeated. A log
	// records what was held, up to N, as an OpForce does whose At is the time of the OpHold that
	// made the hold, enlarged it last or brought it back after its time-out. It needs a [Holder].
	OpSettle

	numOps
)

var opNames = [numOps]string{"take", "peek", "force", "reset", "hold", "settle"}

// String returns the name of the operation, such as "take", or "op(9)" for an unknown one.
func (o Op) String() string {
	if o >= numOps {
		return fmt.Sprintf("op(%d)", uint8(o))
	}
	return opNames[o]
}

// A Demand is one (key, algorithm, n) to be decided.
type Demand struct {
	Key       string    // what is limited: any bytes, at least one
	Algorithm Algorithm // the rule that decides
	Op        Op        // zero is OpTake
	N         int64     // units, from 1 to MaxUnits; OpReset ignores it; OpHold, OpSettle: from 0
	// Least, of an OpTake or OpHold: if it is not 0, the demand takes as much as is free (the
	// Remaining of an OpPeek), between Least and N, which may exceed Max. In a TakeAll it takes
	// what is free under all demands with a Least, whose N and Least have to be equal.
	Least int64
	// At, of an OpForce, is a time in µs since the epoch: a log adds the units to its first record
	// of this time or later, if there is one in the window. 0 records them now. Other algorithms
	// ignore it.
	At int64
	// ID of an OpHold or OpSettle names the hold. It is random, not 0, and never reused; whoever
	// knows it may settle the hold.
	ID uint64
	// HoldTimeout, of an OpHold: how long the units are held, from 1/16 of that of the algorithm to
	// 16 times as long; 0 is that. A hold lasts up to an eighth longer.
	HoldTimeout time.Duration
}

// Step runs d's algorithm on a state; see [Algorithm]. It sets Units of takes and forces.
func (d Demand) Step(state []byte, now int64) (next []byte, keep time.Duration, res Result) {
	var peeked []byte
	var peekedKeep time.Duration
	if d.Least > 0 {
		peeked, peekedKeep, res = d.Peek(state, now)
		switch {
		case peekedKeep < 0:
			return nil, peekedKeep, res
		case peekedKeep > 0:
			state = peeked
		}
		d.N, d.Least = d.part(d.N, res), 0
	}
	next, keep, res = d.Algorithm.Step(state, now, d)
	if d.Op <= OpForce {
		res.Units = Taken(d.Op, d.N, res.Allowed)
	}
	if keep == 0 && peekedKeep > 0 {
		next, keep = peeked, peekedKeep
	}
	return next, keep, res
}

// Grant returns ds with the N that [Demand.Least] makes of theirs, and without a Least. peeked are
// their results of Peek. Without a Least in ds it returns ds itself. TakeAll calls it between Peek
// and Step.
func Grant(ds []Demand, peeked []Result) []Demand {
	n, granted := MaxUnits, ds
	for i := range ds {
		if d := &ds[i]; d.Least > 0 {
			n = d.part(min(n, d.N), peeked[i])
		}
	}
	for i := range ds {
		if ds[i].Least > 0 {
			if &granted[0] == &ds[0] {
				granted = slices.Clone(ds)
			}
			granted[i].N, granted[i].Least = n, 0
		}
	}
	return granted
}

// part returns what becomes of n units where a Peek of d has found free units.
func (d *Demand) part(n int64, peeked Result) int64 {
	return min(n, max(d.Least, peeked.Remaining))
}

// LeastUnits returns the fewest units for which d is admitted: Least, or N if that is 0.
func (d *Demand) LeastUnits() int64 {
	if d.Least > 0 {
		return d.Least
	}
	return d.N
}

// Taken returns the Units of the Result of an OpTake, OpPeek or OpForce of n units. Stores that do
// not call [Demand.Step] need it.
func Taken(op Op, n int64, allowed bool) int64 {
	if op == OpForce || op == OpTake && allowed {
		return n
	}
	return 0
}

// Peek evaluates d on a state without applying it. Stores call it in TakeAll, and only there:
//
//   - Call Peek for every demand, with one reading of the clock.
//   - If a Result is not Allowed, these Results are the answer. Treat next and keep like those of
//     Step: keep is 0, so nothing is written, with the exceptions that [Store] names.
//   - If all are Allowed, call Step for every demand of what [Grant] returns, on the state before
//     the Peek. A Peek with keep > 0 may have written into that, so give it a copy; or store its
//     next and call Step on that, which may then return 0.
//
// Peek does not change the bytes of state unless keep > 0.
//
// For an OpTake, and for an OpHold of N > 0, the Result is that of Step, with Remaining before the
// decision and no Units; with a Least it is that of Least units. All else is always allowed: for
// that it returns what an OpPeek for one unit returns, with Allowed set. For an OpReset a corrupt
// state counts as an empty one.
func (d Demand) Peek(state []byte, now int64) (next []byte, keep time.Duration, res Result) {
	op, always := d.Op, d.NeverRefused()
	d.Op, d.N, d.Least = OpPeek, d.LeastUnits(), 0 // d is a copy already
	if always {
		d.N, d.At, d.ID = 1, 0, 0
	}
	next, keep, res = d.Algorithm.Step(state, now, d)
	if keep < 0 && op == OpReset {
		d.Op = OpReset
		_, _, res = d.Algorithm.Step(nil, now, d)
		return state, 0, res
	}
	if always {
		res.Allowed, res.RetryAfter = true, 0
	}
	return next, keep, res
}

// NeverRefused reports whether d is allowed whatever the state.
func (d *Demand) NeverRefused() bool { return d.Op > OpPeek && (d.Op != OpHold || d.N == 0) }

// A Holder is an Algorithm with holds: [OpHold] and [OpSettle]. An OpPeek with an ID returns what
// an OpHold would, and changes nothing.
type Holder interface {
	Algorithm
	// HoldTimeout returns how long a hold lasts that is not renewed. Then it times out: it does not
	// count any more. For 24 hours it can still be settled and renewed.
	HoldTimeout() time.Duration
	// InFlight reports whether the algorithm has nothing but holds, so that settling records
	// nothing: it limits calls in flight. It has no takes and forces.
	InFlight() bool
}

// An Ahead is an Algorithm whose units can be taken before they are used, by a process that decides
// later by itself who uses them.
type Ahead interface {
	Algorithm
	// Ahead returns the algorithm of the same limit and history whose takes are of units that are
	// used later: from the decision until d after it, or until the ResetAfter of the result if that
	// is sooner. The limit then holds as if each unit were taken when it is used, also beside takes
	// of other leads and of none, if the store's clock is not set forward. A unit may count up to d
	// longer. Ahead returns nil if units cannot be taken so early. 0 is the plain algorithm.
	Ahead(d time.Duration) Algorithm
}

// An Algorithm decides demands. Its Step is a pure function from a state, a time and a demand to a
// new state and a result. Values are immutable, comparable with == and hold their own parameters.
// Package algorithm has those of this module.
type Algorithm interface {
	// Name names the encoding of the state and is part of the stored key. A new encoding gets a new
	// name.
	Name() string

	// Limit returns the limit.
	Limit() Limit

	// Validate reports, as an error that wraps ErrInvalid, which parameter is out of range.
	// Limiters call it.
	Validate() error

	// Step decides d on a state.
	//
	// Step is pure: no clock, no I/O, no randomness. It is total: whatever the state and the
	// demand, it does not panic. now is in microseconds since the Unix epoch on the store's clock,
	// from 0 to the year 2112, and may be earlier than in the step before. An empty state is a key
	// without history. d.Key is ignored and d.Algorithm is the receiver.
	//
	// keep > 0 means: store next, and forget it no sooner than keep from now; with an empty next:
	// delete the state.
	// keep == 0 means: write nothing; state is then byte for byte what it was.
	// keep < 0 means: the bytes are not a state of an algorithm with this Name; nothing may be
	// written.
	// keep is in whole microseconds.
	//
	// Step may write into state only if it returns keep > 0: then next may reuse its array, and the
	// store must not use state again. Pass a copy of bytes that must not be overwritten, such as
	// those of a file that a database maps into memory. A step cannot be undone, so TakeAll calls
	// Peek for all demands first. A store that compares and swaps passes a copy.
	//
	// A state written under other parameters is accepted: limits change in production, and a change
	// takes effect at once.
	Step(state []byte, now int64, d Demand) (next []byte, keep time.Duration, res Result)

	// Script returns the same step for servers that run Lua. The zero Script means that there is
	// none. conformance.CheckLua compares the two.
	Script() Script
}

// A Script is Step for servers that run Lua. It has only the step function: the stores add the code
// that reads the clock, runs steps and writes states.
type Script struct {
	// Name identifies Source: scripts with the same name have the same Source.
	Name string
	// Source is Lua 5.1 that defines "local function step(key, tail, now, op, n, at, args, pos)"
	// and is constant for the algorithm's type. docs/writing-an-algorithm.md describes what step
	// receives and returns.
	Source string
	// Args appends the parameters of d.Algorithm that step finds in args, each at least 0 and below
	// 2^53. It must not keep dst, and must not be nil if Source is not empty.
	Args func(dst []int64, d Demand) []int64
	// Sums reports that k Takes of n units at one instant equal one Take of k·n units. Precisely:
	// after an admitted Take of n units, let a Take of k·n units be admitted with the same time,
	// which step returns, and with k·n less Remaining. Then j Takes of n units in its place, for
	// every j up to k, are all admitted, each with n less Remaining than the one before, and the
	// last has the ResetAfter and leaves the state of one Take of j·n units. ResetAfter grows from
	// each to the next by the same time, or by times that differ by a microsecond. A store may then
	// decide many equal Takes in a few steps. False is always right.
	Sums bool
	// Holds reports that step keeps a second value, a hash, under key .. ":h". Only the scripts of
	// this module have one.
	Holds bool
	// HoldsOnly reports that this hash is the only value, under the key itself.
	HoldsOnly bool
}
