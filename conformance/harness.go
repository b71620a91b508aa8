package conformance

import (
	"testing"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// A NewStore returns a harness for one case. Its store may hold states of other keys. now is the
// clock to run on, in microseconds since the Unix epoch; it is safe for concurrent use and may
// step back. If now is nil, the store runs on its own clock. NewStore is called once for each case,
// so it should be cheap: share servers, not stores. It closes by t.Cleanup what it opens.
type NewStore func(t testing.TB, now func() int64) Harness

// A Harness is a store and what can be done to it. All fields but Store are optional: a case that
// needs a function which is nil is skipped.
type Harness struct {
	// Store is the store under test.
	Store driver.Store
	// Second returns another client of the state behind Store, on the same clock: what another
	// process would use. It is called at most once, before the case begins.
	Second func(testing.TB) driver.Store
	// Settle waits until Store and what Second returned have each received what the other has done,
	// for stores that receive it a little later, such as those that cache refusals. It is called
	// while no call is in flight. Without it, both are expected to receive it at once.
	Settle func() error
	// DropScripts deletes all scripts from the server, as SCRIPT FLUSH does.
	DropScripts func() error
	// Writes returns how many writes the server or the map behind Store has had. The suite checks
	// that some calls do not change it. If it changes, the suite tries three times, and accepts as
	// many writes as other programs make in half a second: with other programs the cases do not
	// fail for a correct store, but find less. Without Writes all cases whose names end in
	// write-nothing or writes-nothing are skipped, except errors/unsupported-writes-nothing.
	Writes func() (int64, error)
	// Close closes Store, or the client that Store runs on. It is called at most once, and before
	// the functions of t.Cleanup.
	Close func() error
	// ClosesClient says that Close closes only the client. The store then need not return
	// ErrClosed.
	ClosesClient bool

	// LoseAnswer drops one answer of the server: the next one that confirms a write, such as the
	// answer to COMMIT or to a script. The server applies the write, and the connection breaks
	// before its answer arrives. Later answers arrive. The suite calls it before a call, while no
	// other call is in flight. Without it errors/lost-answer, errors/no-key-after-lost-answer
	// and lost/hold-asked-again are skipped.
	LoseAnswer func() error

	// Freeze makes the server stop answering, as SIGSTOP or LOCK TABLE does, until thaw is called:
	// connections stay open, and nothing is refused. The server may apply what it has received, at
	// once or after thaw. The suite calls Freeze while calls are in flight, and thaw at most five
	// seconds later. Calls whose context has no deadline must return by then, so give the store a
	// shorter deadline of its own. Without it errors/frozen, errors/frozen-without-deadline and
	// errors/no-key-while-frozen are skipped.
	Freeze func() (thaw func() error, err error)

	// SkewClock sets the server's clock ahead of this process's clock by ahead, or behind it if
	// ahead is negative. The suite skews it by hours, and sets it right with zero at the end of a
	// case. No other test may use the server meanwhile. Without it clock/skewed and expiry/skewed
	// are skipped.
	SkewClock func(ahead time.Duration) error

	// Sweep deletes all states that have run out, by the clock that the store runs on. Outside of
	// tests the store or the server does this in the background. Sweep returns when the states are
	// deleted. The suite calls it between calls and while calls are in flight. If your sweep finds
	// states before it deletes them, let it pause here in between, if only for a few microseconds:
	// so the suite finds a sweep that deletes what a take has written meanwhile. Without Sweep
	// expiry/sweep, expiry/sweep-not-early and expiry/sweep-storm are skipped.
	Sweep func() error
}

// Options say how the suite is run. The zero value runs all of it at the depth that suits every
// commit.
type Options struct {
	// Except has the rules that the store does not keep, such as "concurrency/history", or groups
	// of rules, such as "takeall", each with the reason, which is printed when it is skipped. A
	// store without TakeAll lists takeall and takeall-keys; errors/unsupported-writes-nothing still
	// checks it.
	Except map[string]string

	// Full runs more, longer and other random cases. It takes a minute on memory, and six minutes
	// on a Redis server on the same machine. The race detector and a server farther away take
	// longer, so a full run fails at once if go test's -timeout leaves it less than half an hour:
	// use -timeout=2h. It prints a line for each rule on standard error, which go test shows at
	// once with -v. The environment variable RATELIMIT_CONFORMANCE_FULL=1 does the same.
	Full bool

	// Algorithms make the algorithms that the store is tested with; nil means the sliding-window
	// log, exact and at coarser resolutions. Most cases use the first, and expect it to be exact
	// and to keep a record of each call; the random cases and a few others use all. If yours is not
	// like that, put the log before it. An algorithm that is a driver.Holder is tested by the cases
	// of hold and settle too, and its holds are among those of TakeAlls.
	Algorithms []func(driver.Limit) driver.Algorithm

	// CheckHistory returns an error if a recorded history is not linearizable. Without it
	// concurrency/history and concurrency/history-two-clients are skipped. Use Check of package
	// conformance/linear, which is a package of its own so that this one needs only the standard
	// library.
	CheckHistory func([]Operation) error
}

// An Operation is one call of a recorded history: a Take if it has one demand, otherwise a TakeAll.
// All succeeded.
type Operation struct {
	Client int // who called: 0, 1, …
	// when it was called and when it returned, since the recording began; a refusal from a cache
	// may be as old as Call
	Call, Return time.Duration
	Now          int64           // the store's clock when it decided
	Demands      []driver.Demand // the demands of the call
	Results      []driver.Result // what the call returned
}
