// Package conformance tests that a store keeps the rules of [driver.Store]. An author runs it in
// one test:
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, func(t testing.TB, now func() int64) conformance.Harness {
//			return conformance.Harness{Store: mystore.New(mystore.Options{Now: now})}
//		}, nil)
//	}
//
// # Rules
//
// A rule is a named case that tests sentences of the doc comments of [driver.Store],
// [driver.Op], [driver.Demand], [driver.Algorithm] or [driver.Result]. Each is a
// subtest: "identity/adversarial-keys" is run by -run
// 'TestConformance/identity/adversarial-keys'. A failure prints the sentences, and the line of the
// check that failed. The groups of rules are
//
//   - identity: which demands share a history
//   - step: the store returns what [driver.Demand.Step] returns, for random demands in random
//     order
//   - op, result, window: what each operation does, what a result means, and that no window admits
//     more than Max
//   - hold, settle: units that are held by an ID, under the algorithms of this module and those of
//     [Options] that are a [driver.Holder], and what becomes of them
//   - clock, expiry: clocks that stand, jump and step back; states that run out
//   - takeall, takeall-keys: several demands as one, on one key and on several
//   - errors, lost: which calls fail before any I/O, what each error says about what was recorded,
//     and calls that are made again
//   - concurrency: how many are admitted under contention, and whether recorded histories are
//     linearizable
//   - algorithm: the rules for the algorithm itself, on which a store relies
//
// # Effort
//
// A run takes 10 to 40 seconds. Cases that look for rare faults do as much as they can in a bounded
// time, so a slow store gets fewer calls: identity/many-keys uses up to 250,000 keys,
// op/many-records up to 5,600 records of one key, and concurrency/many-calls about 30,000 calls. A
// run does not find
//
//   - a store that keeps states by a random hash of 32 bits, unless it makes 25,000 decisions a
//     second. At 5,000 a second one run of twenty finds it. Hashes in common use of up to 64 bits,
//     and the first or last 48 bits of MD5, SHA-1 and SHA-256, are always found, by keys that
//     collide, if the store hashes the key alone;
//   - a store that keeps states by a random hash of more than 32 bits;
//   - a fault in fewer than one call of 3,000, or of fewer on a slow store;
//   - a return after the end of the context that is late by less than about 20 milliseconds, or in
//     fewer than one call of 1,000;
//   - a race of less than a microsecond between a sweep and a take, unless [Harness].Sweep makes it
//     longer;
//   - a write where there may be none, if other programs write as much;
//   - a bound of more keys, of more records of a key, or of states larger than 2 MiB.
//
// # Clock
//
// Most cases run on a clock of the suite and never sleep. Windows on it are minutes long, since a
// server lets keys expire in real time. Other cases run on the store's own clock and last about a
// second each. Run all cases under the race detector: it finds more stores that use a caller's
// slice after they have returned.
//
// # Hooks
//
// Faults between a store and its server are tested only if the [Harness] has the functions that
// cause them: LoseAnswer, Freeze, SkewClock and Sweep. If one is missing, its cases are skipped; go
// test -v shows which.
//
// # Algorithms
//
// Authors of an algorithm run the suite with it, and [CheckLua], which compares its steps in Go and
// in Lua.
package conformance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// Run tests all rules on the stores that newStore returns, each as a subtest of t named after the
// rule.
func Run(t *testing.T, newStore NewStore, opts *Options) {
	t.Helper()
	s := newSuite(opts)
	for _, problem := range s.unknown() {
		t.Error(problem)
	}
	all := rules()
	var p *progress
	if deadline, ok := t.Deadline(); ok {
		s.deadline = deadline
	}
	if s.full {
		if problem := tooSoon(s.deadline, time.Now()); !s.deadline.IsZero() && problem != "" {
			t.Fatal(problem)
		}
		p = &progress{to: os.Stderr, test: t.Name(), rules: len(all), begin: time.Now(),
			every: 30 * time.Second}
	}
	for _, r := range all {
		t.Run(r.name, func(t *testing.T) {
			done, how := p.rule(r.name), "failed"
			defer func() { done(how) }()
			skipped, err := s.try(t, newStore, r)
			if err != nil {
				t.Errorf("%v%s\nThe rule %s: %s", err, hint(err), r.name, r.says)
				return
			}
			how = "passed"
			if skipped != "" {
				how = "was skipped"
				t.Skip(skipped)
			}
		})
	}
}

// hint returns what to do about an error that may not be a fault of the store.
func hint(err error) string {
	if !errors.Is(err, context.DeadlineExceeded) {
		return ""
	}
	return "\nIf this is the store's own deadline and the store is only slow, give it a longer " +
		"one for the suite: cases make hundreds of calls at once."
}

// unknown returns what is wrong with Except: a name that is neither a rule nor a group, or no
// reason.
func (s *suite) unknown() (problems []string) {
	known := make(map[string]bool)
	for _, r := range rules() {
		known[r.name], known[r.group()] = true, true
	}
	for _, name := range slices.Sorted(maps.Keys(s.except)) {
		if !known[name] {
			problems = append(problems,
				fmt.Sprintf("Except names %q, which is neither a rule nor a group of rules", name))
		} else if strings.TrimSpace(s.except[name]) == "" {
			problems = append(problems, fmt.Sprintf("Except gives no reason for %q", name))
		}
	}
	return problems
}
