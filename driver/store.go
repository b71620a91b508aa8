package driver

import "context"

// A Store keeps algorithm state by key and runs steps on it atomically. It is the contract for
// authors of stores. Package conformance tests every rule below, and docs/writing-a-store.md shows
// how to write a store.
//
// Identity
//
//   - The key, the limit's name and the algorithm's name identify a state, and nothing else does:
//     demands with the same three share one history, whatever Max, Window and other parameters,
//     and demands that differ in one of the three share nothing.
//   - Keys are arbitrary bytes that come from end users: a store isolates them whatever they hold,
//     and never writes one to an error or a log.
//   - A store accepts keys of any length. If its server bounds the length of a key, the store keeps
//     longer keys as hashes.
//
// Decisions
//
//   - The store calls Step with the state, its own clock and the demand, and returns exactly Step's
//     Result. For takes it may instead repeat an earlier refusal that still holds, with
//     SourceCache; see [Result.Source].
//   - Steps on one state are atomic and linearizable, also across processes that share the store.
//   - A peek and a refusal write nothing: when Step returns keep == 0 the stored state does not
//     change, its time to live included. For a peek or a refusal, Step returns keep > 0 only after
//     the clock has stepped back by more than a Window, or after the limit has changed.
//   - TakeAll is atomic over its states: all demands are admitted, or none leaves a trace. TakeAll
//     evaluates all demands, even after one is refused. If a demand of a TakeAll is refused, each
//     Result is that of [Demand.Peek].
//   - A refusal is a Result, never an error.
//
// Time
//
//   - The store owns the clock: microseconds since the Unix epoch, the same clock for all who share
//     the store. A call reads the clock once, after it has locked its states, so from one step on a
//     state to the next the time does not go back unless the clock was set back.
//   - A state is forgotten no sooner than keep after the step that returned it. After that time a
//     step decides on the state as on an empty one, so it does not matter when the state is
//     forgotten, unless the clock steps back afterwards.
//   - A store that has no room for a new state returns ErrCapacity. To make room, a store forgets
//     only states that have run out.
//
// Errors
//
//   - Take begins with [CheckTake] and TakeAll with [CheckTakeAll]: their errors are returned
//     unchanged, before any I/O.
//   - An error means that the demand is undecided. ErrUnavailable without ErrOutcomeUnknown says
//     that nothing was recorded. ErrOutcomeUnknown says that the demand may have been recorded. A
//     store never sends a demand twice once it may have been received.
//   - A call that other calls with its key keep from a decision returns ErrContended, whether these
//     wait in the store, in its server or in another process. While nothing is decided, calls do
//     not return ErrContended, however many wait.
//   - If Step returns keep < 0, the store writes nothing and returns ErrCorruptState.
//   - After its own Close a store returns ErrClosed. If only the client that it runs on was closed,
//     ErrUnavailable is enough.
//
// Concurrency
//
//   - All methods are safe for concurrent use. Calls return when the context ends, and at the
//     latest by the store's own deadline.
//
// A store that wraps another forwards two methods. Package layer has such stores.
type Store interface {
	// Take decides one demand.
	Take(ctx context.Context, d Demand) (Result, error)

	// TakeAll decides several demands as one: all are admitted, or none leaves a trace. There are
	// at most [MaxDemands] of them. out has the length of ds, and out[i] is set to the Result of
	// ds[i]. After an error out holds no decision, whatever the store has written to it. A store
	// that cannot decide the demands of a TakeAll together (Redis Cluster, keys of several slots)
	// returns an error that wraps [errors.ErrUnsupported] before it writes anything. The store
	// keeps neither slice.
	TakeAll(ctx context.Context, ds []Demand, out []Result) error
}
