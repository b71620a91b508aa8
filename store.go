package ratelimit

import "context"

// A Store keeps algorithm state by key and runs steps on it atomically. It is the contract for
// authors of stores; to limit something, use a [Limiter]. Package conformance tests every rule
// below, and docs/writing-a-store.md shows how to write a store.
//
// Identity
//
//   - A state belongs to the key, the limit's name and the algorithm's name, and to nothing else:
//     the same three are the same history, whatever Max, Window or other parameter, and any two
//     that differ in one of the three share nothing.
//   - Keys are arbitrary bytes that come from end users: a store isolates them whatever they hold,
//     and never writes one to an error or a log.
//   - No key is too long: a store whose server bounds the length of a key stores a hash of a longer
//     one.
//
// Decisions
//
//   - The store calls Step with the state, its own clock and the demand, and returns exactly Step's
//     Result.
//   - Steps on one state are atomic and linearizable, also across processes that share the store.
//   - A peek and a refusal write nothing: when Step returns keep == 0 the stored state does not
//     change, its time to live included. (For these Step returns another keep only after the
//     clock has stepped back by more than a Window.)
//   - TakeAll is atomic over its states: all demands are admitted, or none leaves a trace. All are
//     evaluated even after one is refused, and when one is, each Result is that of [Demand.Peek].
//   - A refusal is a Result, never an error.
//
// Time
//
//   - The store owns the clock: microseconds since the Unix epoch, one reading for a call, the same
//     clock for all who share the store.
//   - Expiry is only garbage collection: a state is forgotten no sooner than keep after the step
//     that returned it, and whether a state that has run out was forgotten yet changes no decision.
//   - A store that has no room for a new state returns ErrCapacity, and forgets no other state to
//     make room.
//
// Errors
//
//   - Take begins with [CheckTake] and TakeAll with [CheckTakeAll]: their errors are returned
//     unchanged, before any I/O.
//   - An error means undecided. ErrUnavailable alone says that nothing was recorded;
//     ErrOutcomeUnknown that the demand was sent and may have been recorded. A store never sends a
//     demand twice once it may have been received.
//   - A negative keep means that the state is not one the algorithm wrote: the store writes nothing
//     and returns ErrCorruptState.
//   - After its own Close a store returns ErrClosed. If only the client that it runs on was closed,
//     ErrUnavailable is enough.
//
// Concurrency
//
//   - All methods are safe for concurrent use. They return when the context ends, at the latest
//     by the store's own deadline.
//
// There are no optional methods, so a store that wraps another forwards two methods and loses only
// the shortcut that a Limiter has to the memory store. Package layer has such stores.
type Store interface {
	// Take decides one demand.
	Take(ctx context.Context, d Demand) (Result, error)

	// TakeAll decides several demands as one: all are admitted, or none leaves a trace. out has the
	// length of ds, and out[i] is set to the Result of ds[i]. After an error out holds no decision,
	// whatever the store has written to it. A store that cannot decide these demands together
	// (Redis Cluster, keys of several slots) returns an error that wraps [errors.ErrUnsupported]
	// before anything was written. The store keeps neither slice.
	TakeAll(ctx context.Context, ds []Demand, out []Result) error
}
