// Package conformance proves that a store keeps the rules of [ratelimit.Store]. An author runs it in one test:
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, func(t testing.TB, now func() int64) conformance.Harness {
//			return conformance.Harness{Store: mystore.New(mystore.Options{Now: now})}
//		}, nil)
//	}
//
// # Rules
//
// A rule is a sentence of the doc comments of [ratelimit.Store], [ratelimit.Op], [ratelimit.Demand], [ratelimit.Algorithm] or
// [ratelimit.Result]. Each is one or more named cases, and each case is a subtest: "identity/adversarial-keys" is run by
// -run 'TestConformance/identity/adversarial-keys'. A failure prints the sentence, and the line of the check that failed.
// The groups are
//
//   - identity: which demands share a history
//   - step: the store returns what [ratelimit.Demand.Step] returns, whatever is asked in which order
//   - op, result, window: what each operation does, what a result means, and that no window admits more than Max
//   - clock, expiry: clocks that stand, jump and step back; states that run out
//   - takeall, takeall-keys: several demands as one, on one key and on several
//   - errors: what is refused before any I/O, what each error says about what was recorded
//   - concurrency: how many are admitted under contention, and whether recorded histories are linearizable
//   - algorithm: what the algorithm itself must keep for a store to be able to
//
// # Clock
//
// Most cases run on a clock of the suite's and never sleep. Windows on it are minutes long, since a server lets keys expire in
// real time. The cases that need it run on the store's own clock and last about a second each. All cases are meant to run
// under the race detector, which is what shows that a store uses a caller's slice too late.
package conformance

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
)

// A NewStore returns a harness for one case, on a store that may hold states of other keys. now is the clock to run on, in
// microseconds since the Unix epoch; it is safe for simultaneous use and may step back. If now is nil, the store runs on its
// own clock. It is called once a case, so it should be cheap: share servers, not stores. What it opens it
// closes by t.Cleanup.
type NewStore func(t testing.TB, now func() int64) Harness

// A Harness is a store and what can be done to it. All but Store may be nil: the cases that need it are then skipped.
type Harness struct {
	// Store is the store that is tried.
	Store ratelimit.Store
	// Second returns another client of the state behind Store, on the same clock: what another process would use. It is
	// called at most once, before the case begins.
	Second func(testing.TB) ratelimit.Store
	// Settle returns when Store and what Second returned know what each other has done, for stores that learn of it a little later, as those
	// do that cache refusals. It is called while no demand is under way. Without it both are held to know at once.
	Settle func() error
	// DropScripts makes the server forget the scripts it was sent, as SCRIPT FLUSH does.
	DropScripts func() error
	// Writes returns how many writes the server or the map behind Store has had. It only has to stay the same
	// while nothing is written, so it is of use only where nobody else writes.
	Writes func() (int64, error)
	// Close closes Store, or the client that Store runs on. It is called at most once; what t.Cleanup does must bear that.
	Close func() error
}

// Options say how the suite is run. The zero value runs all of it at the depth that suits every commit.
type Options struct {
	// Except maps what the store does not keep to the reason, which is printed when it is skipped: a rule such as
	// "concurrency/history", or a group of them such as "takeall". A store without TakeAll excepts takeall and takeall-keys; it is
	// still held to errors/unsupported-writes-nothing.
	Except map[string]string

	// Full runs more, longer and other random cases: minutes, not seconds. The environment variable
	// RATELIMIT_CONFORMANCE_FULL=1 does the same.
	Full bool

	// Algorithms make the algorithms that the store is tried with; nil means the sliding-window log, exact and at coarser resolutions.
	// The cases that are about one history use the first, and expect it to be exact; the random ones change from one to the other under
	// way. An author of an exact algorithm puts it first, of another one second.
	Algorithms []func(ratelimit.Limit) ratelimit.Algorithm

	// CheckHistory returns an error if a recorded history is not linearizable. Check of package conformance/linear is one;
	// without it concurrency/history is skipped, so that this package needs nothing but the standard library.
	CheckHistory func([]Operation) error
}

// An Operation is one call of a recorded history: a Take if it has one demand, otherwise a TakeAll. All succeeded.
type Operation struct {
	Client       int                // who called: 0, 1, …
	Call, Return time.Duration      // when it was called and when it returned, since the recording began; a refusal from a cache may be as old as Call
	Now          int64              // the store's clock, which stood still between Call and Return
	Demands      []ratelimit.Demand // what was asked
	Results      []ratelimit.Result // what was answered
}

// Answers tells whether Results are those that the algorithm returned, or refusals from a cache that promise no more.
func (op Operation) Answers(returned []ratelimit.Result) bool {
	return slices.EqualFunc(op.Results, returned, same)
}

// Run tries all rules on the stores that newStore returns, each as a subtest of t named after the rule.
func Run(t *testing.T, newStore NewStore, opts *Options) {
	t.Helper()
	s := newSuite(opts)
	for _, problem := range s.unknown() {
		t.Error(problem)
	}
	for _, r := range rules() {
		t.Run(r.name, func(t *testing.T) {
			skipped, err := s.try(t, newStore, r)
			if err != nil {
				t.Errorf("%v\nThe rule %s: %s", err, r.name, r.says)
			} else if skipped != "" {
				t.Skip(skipped)
			}
		})
	}
}

// suite is Options with the defaults filled in.
type suite struct {
	except       map[string]string
	full         bool
	algorithms   []func(ratelimit.Limit) ratelimit.Algorithm
	checkHistory func([]Operation) error
}

func newSuite(opts *Options) *suite {
	if opts == nil {
		opts = new(Options)
	}
	s := &suite{
		except:       opts.Except,
		full:         opts.Full || os.Getenv("RATELIMIT_CONFORMANCE_FULL") == "1",
		algorithms:   opts.Algorithms,
		checkHistory: opts.CheckHistory,
	}
	if len(s.algorithms) == 0 {
		s.algorithms = []func(ratelimit.Limit) ratelimit.Algorithm{slidingLog(1), slidingLog(100), slidingLog(37_777)}
	}
	return s
}

// slidingLog makes sliding-window logs of a window's parts, exact ones for 1.
func slidingLog(parts time.Duration) func(ratelimit.Limit) ratelimit.Algorithm {
	return func(limit ratelimit.Limit) ratelimit.Algorithm {
		log := algorithm.SlidingLog(limit)
		if parts > 1 {
			log = log.WithResolution((limit.Window / parts).Truncate(time.Microsecond))
		}
		return log
	}
}

// unknown returns what is wrong with Except: a name that is neither a rule nor a group, or no reason.
func (s *suite) unknown() (problems []string) {
	known := make(map[string]bool)
	for _, r := range rules() {
		known[r.name], known[r.group()] = true, true
	}
	for _, name := range slices.Sorted(maps.Keys(s.except)) {
		if !known[name] {
			problems = append(problems, fmt.Sprintf("Except names %q, which is neither a rule nor a group of rules", name))
		} else if strings.TrimSpace(s.except[name]) == "" {
			problems = append(problems, fmt.Sprintf("Except gives no reason for %q", name))
		}
	}
	return problems
}

// excepted returns the reason for which r is not tried.
func (s *suite) excepted(r rule) (reason string, ok bool) {
	if reason, ok = s.except[r.name]; !ok {
		reason, ok = s.except[r.group()]
	}
	return reason, ok
}
