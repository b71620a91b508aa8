package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
)

// A fault is a broken store, and the rules that must find it.
type fault struct {
	name       string
	rules      string // separated by spaces
	always     bool   // every try of every rule sees it
	bugs       bugs
	algorithms []func(driver.Limit) driver.Algorithm
}

func TestFaultsAreNamed(t *testing.T) {
	t.Parallel()
	byName := make(map[string]rule)
	for _, r := range rules() {
		byName[r.name] = r
	}
	late := func(f fault) bool { return strings.Contains(f.rules, "errors/ending-context") }
	try := func(t *testing.T, f fault) {
		t.Run(strings.ReplaceAll(f.name, " ", "-"), func(t *testing.T) {
			s := newSuite(&Options{Algorithms: f.algorithms, CheckHistory: acceptAll})
			s.patience = 40 // so that a busy machine makes as many calls as an idle one
			if late(f) {
				s.patience = 5 // it may take all of this time
			}
			for name := range strings.FieldsSeq(f.rules) {
				r, ok := byName[name]
				if !ok {
					t.Fatalf("there is no rule %q", name)
				}
				if f.always {
					seeEvery(t, s, f, r)
				} else {
					seeOnce(t, s, f, r)
				}
			}
		})
	}
	inTime := func(f fault) bool { return !late(f) }
	eachAtOnce(t, slices.DeleteFunc(faults(), late), try)
	eachAtOnce(t, slices.DeleteFunc(faults(), inTime), try) // a busy machine hides these
}

// eachAtOnce calls f with four values at a time. Faults mostly wait.
func eachAtOnce[T any](t *testing.T, values []T, f func(*testing.T, T)) {
	var wg sync.WaitGroup
	next := make(chan T)
	for range 4 {
		wg.Go(func() {
			for value := range next {
				f(t, value)
			}
		})
	}
	for _, value := range values {
		next <- value
	}
	close(next)
	wg.Wait()
}

// seeOnce tries a rule up to twenty times, since a random case may miss a fault now and then, and
// on a busy machine more often.
func seeOnce(t *testing.T, s *suite, f fault, r rule) {
	t.Helper()
	for range 20 {
		if _, err := s.try(t, newReference(f.bugs), r); err != nil {
			t.Logf("%s: %.300v", r.name, err)
			return
		}
	}
	t.Errorf("%s does not find this fault", r.name)
}

// seeEvery tries a rule once, in a full run three times. Each must see the fault.
func seeEvery(t *testing.T, s *suite, f fault, r rule) {
	t.Helper()
	for i := range depth.Of(1, 3) {
		_, err := s.try(t, newReference(f.bugs), r)
		if err == nil {
			t.Fatalf("%s does not find this fault in run %d", r.name, i+1)
		}
		t.Logf("%s: %.300v", r.name, err)
	}
}

// TestEveryRuleCanFail checks that each rule finds at least one fault.
func TestEveryRuleCanFail(t *testing.T) {
	named := map[string]bool{
		"concurrency/history": true, "concurrency/history-two-clients": true, // by TestHistories
		"step/own-bytes": true, // by TestMappedStates
	}
	for _, f := range faults() {
		for name := range strings.FieldsSeq(f.rules) {
			named[name] = true
		}
	}
	for _, f := range serverFaults {
		for name := range strings.FieldsSeq(f.rules) {
			named[name] = true
		}
	}
	for _, r := range rules() {
		if !named[r.name] {
			t.Errorf("no fault is named by %s", r.name)
		}
	}
}

func faults() []fault {
	return slices.Concat(identityFaults, stepFaults, clockFaults, takeAllFaults, errorFaults,
		concurrencyFaults, algorithmFaults, cacheFaults,
		raceFaults, keyFaults, joinFaults(), hashFaults(), volumeFaults, windowFaults,
		writeFaults, takeAllManyFaults, holdFaults, leastFaults, takeAllHoldFaults,
		theirHoldFaults, aheadFaults)
}

// identify returns a bug that changes what a state belongs to.
func identify(change func(driver.Demand, *identity)) bugs {
	return bugs{id: func(d driver.Demand) identity {
		id := identityOf(d)
		change(d, &id)
		return id
	}}
}

var identityFaults = []fault{
	{name: "shared keys",
		rules: "identity/adversarial-keys takeall-keys/admits-all takeall-keys/results",
		bugs:  identify(func(_ driver.Demand, id *identity) { id.key = "" })},
	{name: "keys end at NUL", rules: "identity/adversarial-keys",
		bugs: identify(func(_ driver.Demand, id *identity) {
			id.key, _, _ = strings.Cut(id.key, "\x00")
		})},
	{name: "keys without braces", rules: "identity/adversarial-keys",
		bugs: identify(func(_ driver.Demand, id *identity) {
			id.key = strings.NewReplacer("{", "", "}", "").Replace(id.key)
		})},
	{name: "keys unescaped", rules: "identity/adversarial-keys",
		bugs: identify(func(_ driver.Demand, id *identity) {
			id.key = strings.ReplaceAll(id.key, "{", "%7B")
		})},
	{name: "keys cut at 256 bytes", rules: "identity/adversarial-keys",
		bugs: identify(func(_ driver.Demand, id *identity) {
			id.key = id.key[:min(len(id.key), 256)]
		})},
	{name: "keys as UTF-8", rules: "identity/adversarial-keys",
		bugs: identify(func(_ driver.Demand, id *identity) {
			id.key = strings.ToValidUTF8(id.key, "?")
		})},
	{name: "keys in lower case", rules: "identity/adversarial-keys",
		bugs: identify(func(_ driver.Demand, id *identity) {
			id.key = strings.ToLower(id.key)
		})},
	{name: "keys trimmed", rules: "identity/adversarial-keys",
		bugs: identify(func(_ driver.Demand, id *identity) {
			id.key = strings.TrimSpace(id.key)
		})},
	{name: "limits of a key share a state",
		rules: "identity/limit-names takeall/admits-all step/results",
		bugs:  identify(func(_ driver.Demand, id *identity) { id.limit = "" })},
	{name: "algorithms share a state", rules: "identity/algorithm-names",
		bugs: identify(func(_ driver.Demand, id *identity) { id.algorithm = "" })},
	{name: "history split by parameters",
		rules: "identity/parameters result/remaining expiry/window-grows step/results",
		bugs: identify(func(d driver.Demand, id *identity) {
			id.algorithm = fmt.Sprintf("%+v", unwrap(d.Algorithm))
		})},
	{name: "key in an error", rules: "identity/no-key-in-errors",
		bugs: bugs{stepped: func(_ *reference, d driver.Demand, _ []byte, s *step) {
			if s.err != nil {
				s.err = fmt.Errorf("key %s: %w", d.Key, s.err)
			}
		}}},
}

// asks returns a bug that changes what Step gets.
func asks(change func(*driver.Demand)) bugs {
	return bugs{demand: func(
		_ *reference, d driver.Demand, now int64,
	) (driver.Demand, int64) {
		change(&d)
		return d, now
	}}
}

// answers returns a bug that changes the result of a step.
func answers(change func(driver.Demand, *driver.Result)) bugs {
	return bugs{stepped: func(_ *reference, d driver.Demand, _ []byte, s *step) {
		change(d, &s.res)
	}}
}

// widened is an algorithm whose window is off by one microsecond.
func widened(by time.Duration) bugs {
	return asks(func(d *driver.Demand) {
		if naive, ok := naiveOf(d.Algorithm); ok {
			naive.Of.Window += by
			d.Algorithm = naive
		}
	})
}

var stepFaults = []fault{
	{name: "refusals recorded",
		rules: "op/take step/refusals-leave-no-trace step/refusals-write-nothing step/results",
		bugs: bugs{take: func(r *reference, _ context.Context, d driver.Demand) step {
			s := r.one(d)
			if d.Op == driver.OpTake && !s.res.Allowed {
				d.Op = driver.OpForce
				r.one(d)
			}
			return s
		}}},
	{name: "refusals forget the state",
		rules: "step/peeks-leave-no-trace step/refusals-leave-no-trace step/results op/peek",
		bugs: bugs{stepped: func(_ *reference, _ driver.Demand, old []byte, s *step) {
			if s.keep == 0 {
				s.next, s.keep = old, time.Microsecond
			}
		}}},
	{name: "refusals renew the time to live",
		rules: "step/peeks-write-nothing step/refusals-write-nothing " +
			"takeall/refusals-write-nothing takeall-keys/refusals-write-nothing",
		bugs: bugs{stepped: func(_ *reference, d driver.Demand, old []byte, s *step) {
			if s.keep == 0 && len(old) > 0 && s.err == nil {
				s.next, s.keep = old, d.Algorithm.Limit().Window
			}
		}}},
	{name: "what is not to be written is", rules: "step/state takeall/state",
		bugs: bugs{put: func(r *reference, id identity, now int64, s step) {
			switch old, ok := r.states[id]; {
			case s.err == nil && s.keep > 0:
				r.write(id, now, s)
			case s.err == nil && ok:
				r.states[id] = cell{s.next, old.until}
			}
		}}},
	{name: "error instead of a refusal", rules: "step/refusals-are-results step/results",
		bugs: bugs{stepped: func(_ *reference, _ driver.Demand, _ []byte, s *step) {
			if !s.res.Allowed && s.err == nil {
				s.err = driver.ErrUnavailable
			}
		}}},
	{name: "scripts that were dropped are an error",
		rules: "step/scripts-dropped concurrency/count-scripts-dropped",
		bugs: bugs{take: func(r *reference, _ context.Context, d driver.Demand) step {
			r.mu.Lock()
			dropped := r.dropped
			r.dropped = false
			r.mu.Unlock()
			if dropped {
				return step{err: driver.ErrUnavailable}
			}
			return r.one(d)
		}}},
	{name: "n ignored", rules: "op/weights op/take step/results concurrency/weights",
		bugs: asks(func(d *driver.Demand) { d.N = 1 })},
	{name: "peeks take",
		rules: "op/peek step/peeks-leave-no-trace step/peeks-write-nothing step/results",
		bugs: asks(func(d *driver.Demand) {
			if d.Op == driver.OpPeek {
				d.Op = driver.OpTake
			}
		})},
	{name: "force is a take", rules: "op/force op/weights takeall/operations",
		bugs: asks(func(d *driver.Demand) {
			if d.Op == driver.OpForce {
				d.Op, d.N = driver.OpTake, min(d.N, d.Algorithm.Limit().Max)
			}
		})},
	{name: "reset forgets nothing",
		rules: "op/reset errors/corrupt-state takeall/corrupt-state identity/limit-names " +
			"step/results",
		bugs: bugs{put: func(r *reference, id identity, now int64, s step) {
			if s.err == nil && s.keep > 0 && len(s.next) > 0 {
				r.write(id, now, s)
			}
		}}},
	{name: "retry-after short by a microsecond",
		rules: "result/retry-after clock/back-within-window clock/own step/results",
		bugs: answers(func(_ driver.Demand, res *driver.Result) {
			res.RetryAfter = max(0, res.RetryAfter-time.Microsecond)
		})},
	{name: "reset-after in milliseconds",
		rules: "result/reset-after clock/microseconds step/results",
		bugs: answers(func(_ driver.Demand, res *driver.Result) {
			res.ResetAfter = res.ResetAfter.Round(time.Millisecond)
		})},
	{name: "remaining before taking", rules: "result/remaining op/take takeall/admits-all",
		bugs: answers(func(d driver.Demand, res *driver.Result) {
			if d.Op == driver.OpTake && res.Allowed {
				res.Remaining += d.N
			}
		})},
	{name: "every result from the cache", rules: "result/source",
		bugs: answers(func(_ driver.Demand, res *driver.Result) {
			res.Source = driver.SourceCache
		})},
	{name: "window longer by a microsecond", rules: "window/rolling expiry/run-out step/results",
		bugs: widened(time.Microsecond)},
	{name: "window shorter by a microsecond", rules: "window/rolling step/results",
		bugs: widened(-time.Microsecond)},
}
