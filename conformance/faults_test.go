package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
)

// A fault is a broken store, and the rules that must name what is broken.
type fault struct {
	name       string
	rules      string // separated by spaces
	bugs       bugs
	algorithms []func(ratelimit.Limit) ratelimit.Algorithm
}

func TestFaultsAreNamed(t *testing.T) {
	byName := make(map[string]rule)
	for _, r := range rules() {
		byName[r.name] = r
	}
	for _, f := range faults() {
		t.Run(strings.ReplaceAll(f.name, " ", "-"), func(t *testing.T) {
			s := newSuite(&Options{Algorithms: f.algorithms, CheckHistory: acceptAll})
			for name := range strings.FieldsSeq(f.rules) {
				r, ok := byName[name]
				if !ok {
					t.Fatalf("there is no rule %q", name)
				}
				var err error
				for range 5 { // a random case may miss a fault now and then
					if _, err = s.try(t, newReference(f.bugs), r); err != nil {
						break
					}
				}
				if err == nil {
					t.Errorf("%s does not see this fault", name)
				} else {
					t.Logf("%s: %.300v", name, err)
				}
			}
		})
	}
}

// TestEveryRuleCanFail sees to it that each rule names at least one fault.
func TestEveryRuleCanFail(t *testing.T) {
	named := map[string]bool{"concurrency/history": true, "concurrency/history-two-clients": true} // by TestHistories
	for _, f := range faults() {
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
	return slices.Concat(identityFaults, stepFaults, clockFaults, takeAllFaults, errorFaults, concurrencyFaults, algorithmFaults)
}

// identify returns a bug that changes what a state belongs to.
func identify(change func(ratelimit.Demand, *identity)) bugs {
	return bugs{id: func(d ratelimit.Demand) identity {
		id := identityOf(d)
		change(d, &id)
		return id
	}}
}

var identityFaults = []fault{
	{name: "shared keys", rules: "identity/adversarial-keys takeall-keys/admits-all takeall-keys/results",
		bugs: identify(func(_ ratelimit.Demand, id *identity) { id.key = "" })},
	{name: "keys end at NUL", rules: "identity/adversarial-keys",
		bugs: identify(func(_ ratelimit.Demand, id *identity) { id.key, _, _ = strings.Cut(id.key, "\x00") })},
	{name: "keys and limits joined by a colon", rules: "identity/adversarial-keys",
		bugs: identify(func(_ ratelimit.Demand, id *identity) { id.key, id.limit = id.key+":"+id.limit, "" })},
	{name: "keys without braces", rules: "identity/adversarial-keys",
		bugs: identify(func(_ ratelimit.Demand, id *identity) { id.key = strings.NewReplacer("{", "", "}", "").Replace(id.key) })},
	{name: "keys unescaped", rules: "identity/adversarial-keys",
		bugs: identify(func(_ ratelimit.Demand, id *identity) { id.key = strings.ReplaceAll(id.key, "{", "%7B") })},
	{name: "keys cut at 256 bytes", rules: "identity/adversarial-keys",
		bugs: identify(func(_ ratelimit.Demand, id *identity) { id.key = id.key[:min(len(id.key), 256)] })},
	{name: "keys as UTF-8", rules: "identity/adversarial-keys",
		bugs: identify(func(_ ratelimit.Demand, id *identity) { id.key = strings.ToValidUTF8(id.key, "?") })},
	{name: "keys in lower case", rules: "identity/adversarial-keys",
		bugs: identify(func(_ ratelimit.Demand, id *identity) { id.key = strings.ToLower(id.key) })},
	{name: "keys trimmed", rules: "identity/adversarial-keys",
		bugs: identify(func(_ ratelimit.Demand, id *identity) { id.key = strings.TrimSpace(id.key) })},
	{name: "limits of a key share a state", rules: "identity/limit-names takeall/admits-all step/results",
		bugs: identify(func(_ ratelimit.Demand, id *identity) { id.limit = "" })},
	{name: "algorithms share a state", rules: "identity/algorithm-names",
		bugs: identify(func(_ ratelimit.Demand, id *identity) { id.algorithm = "" })},
	{name: "history split by parameters", rules: "identity/parameters result/remaining expiry/window-grows step/results",
		bugs: identify(func(d ratelimit.Demand, id *identity) { id.algorithm = fmt.Sprintf("%+v", unwrap(d.Algorithm)) })},
	{name: "key in an error", rules: "identity/no-key-in-errors",
		bugs: bugs{stepped: func(_ *reference, d ratelimit.Demand, _ []byte, s *step) {
			if s.err != nil {
				s.err = fmt.Errorf("key %s: %w", d.Key, s.err)
			}
		}}},
}

// asks returns a bug that changes what Step gets.
func asks(change func(*ratelimit.Demand)) bugs {
	return bugs{demand: func(_ *reference, d ratelimit.Demand, now int64) (ratelimit.Demand, int64) {
		change(&d)
		return d, now
	}}
}

// answers returns a bug that changes the result of a step.
func answers(change func(ratelimit.Demand, *ratelimit.Result)) bugs {
	return bugs{stepped: func(_ *reference, d ratelimit.Demand, _ []byte, s *step) { change(d, &s.res) }}
}

// widened is an algorithm whose window is off by one microsecond.
func widened(by time.Duration) bugs {
	return asks(func(d *ratelimit.Demand) {
		if a, ok := unwrap(d.Algorithm).(interface{ Resolution() time.Duration }); ok {
			limit := d.Algorithm.Limit()
			limit.Window += by
			d.Algorithm = naive{limit, a.Resolution()}
		}
	})
}

var stepFaults = []fault{
	{name: "refusals recorded", rules: "op/take step/refusals-write-nothing step/results",
		bugs: bugs{take: func(r *reference, _ context.Context, d ratelimit.Demand) step {
			s := r.one(d)
			if d.Op == ratelimit.Take && !s.res.Allowed {
				d.Op = ratelimit.Force
				r.one(d)
			}
			return s
		}}},
	{name: "refusals forget the state", rules: "step/looks-write-nothing step/refusals-write-nothing step/results op/look",
		bugs: bugs{stepped: func(_ *reference, _ ratelimit.Demand, old []byte, s *step) {
			if s.keep == 0 {
				s.next, s.keep = old, time.Microsecond
			}
		}}},
	{name: "refusals renew the time to live", rules: "step/looks-write-nothing step/refusals-write-nothing takeall/none-leaves-a-trace takeall-keys/none-leaves-a-trace",
		bugs: bugs{stepped: func(_ *reference, d ratelimit.Demand, old []byte, s *step) {
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
		bugs: bugs{stepped: func(_ *reference, _ ratelimit.Demand, _ []byte, s *step) {
			if !s.res.Allowed && s.err == nil {
				s.err = ratelimit.ErrUnavailable
			}
		}}},
	{name: "scripts that were dropped are an error", rules: "step/scripts-dropped concurrency/count-scripts-dropped",
		bugs: bugs{take: func(r *reference, _ context.Context, d ratelimit.Demand) step {
			r.mu.Lock()
			dropped := r.dropped
			r.dropped = false
			r.mu.Unlock()
			if dropped {
				return step{err: ratelimit.ErrUnavailable}
			}
			return r.one(d)
		}}},
	{name: "n ignored", rules: "op/weights op/take op/give-back step/results concurrency/weights",
		bugs: asks(func(d *ratelimit.Demand) { d.N = 1 })},
	{name: "looks take", rules: "op/look step/looks-write-nothing step/results",
		bugs: asks(func(d *ratelimit.Demand) {
			if d.Op == ratelimit.Look {
				d.Op = ratelimit.Take
			}
		})},
	{name: "force is a take", rules: "op/force op/weights takeall/operations",
		bugs: asks(func(d *ratelimit.Demand) {
			if d.Op == ratelimit.Force {
				d.Op, d.N = ratelimit.Take, min(d.N, d.Algorithm.Limit().Max)
			}
		})},
	{name: "units given back twice", rules: "op/give-back step/results",
		bugs: bugs{take: func(r *reference, _ context.Context, d ratelimit.Demand) step {
			if d.Op == ratelimit.GiveBack {
				r.one(d)
			}
			return r.one(d)
		}}},
	{name: "units given back to the newest record", rules: "op/give-back-twice op/give-back-late op/give-back step/results",
		bugs: bugs{demand: func(r *reference, d ratelimit.Demand, now int64) (ratelimit.Demand, int64) {
			if d.Op == ratelimit.GiveBack {
				d.At = r.last
			}
			return d, now
		}, stepped: func(r *reference, d ratelimit.Demand, _ []byte, s *step) {
			if d.Op == ratelimit.Take && s.res.Allowed {
				r.last = s.res.At
			}
		}}},
	{name: "reset forgets nothing", rules: "op/reset errors/corrupt-state takeall/corrupt-state identity/limit-names step/results",
		bugs: bugs{put: func(r *reference, id identity, now int64, s step) {
			if s.err == nil && s.keep > 0 && len(s.next) > 0 {
				r.write(id, now, s)
			}
		}}},
	{name: "retry-after short by a microsecond", rules: "result/retry-after clock/back-within-window step/results",
		bugs: answers(func(_ ratelimit.Demand, res *ratelimit.Result) {
			res.RetryAfter = max(0, res.RetryAfter-time.Microsecond)
		})},
	{name: "reset-after in milliseconds", rules: "result/reset-after clock/microseconds step/results",
		bugs: answers(func(_ ratelimit.Demand, res *ratelimit.Result) {
			res.ResetAfter = res.ResetAfter.Round(time.Millisecond)
		})},
	{name: "remaining before taking", rules: "result/remaining op/take takeall/admits-all",
		bugs: answers(func(d ratelimit.Demand, res *ratelimit.Result) {
			if d.Op == ratelimit.Take && res.Allowed {
				res.Remaining += d.N
			}
		})},
	{name: "stamp of the call instead of the record", rules: "result/at op/give-back step/results",
		bugs: answers(func(_ ratelimit.Demand, res *ratelimit.Result) { res.At -= res.At % 1000 })},
	{name: "window longer by a microsecond", rules: "window/rolling expiry/run-out step/results", bugs: widened(time.Microsecond)},
	{name: "window shorter by a microsecond", rules: "window/rolling step/results", bugs: widened(-time.Microsecond)},
}

// clocks returns a bug that changes what the clock says.
func clocks(change func(now int64) int64) bugs {
	return bugs{clock: func(_ *reference, now int64) int64 { return change(now) }}
}

var clockFaults = []fault{
	{name: "clock in milliseconds", rules: "clock/microseconds clock/epoch result/at result/retry-after step/results",
		bugs: clocks(func(now int64) int64 { return now - now%1000 })},
	{name: "clock since the start of the process", rules: "clock/epoch clock/range",
		bugs: clocks(func(now int64) int64 { return now % 1e12 })},
	{name: "resolution used for now", rules: "clock/microseconds window/rolling step/results",
		bugs: bugs{demand: func(_ *reference, d ratelimit.Demand, now int64) (ratelimit.Demand, int64) {
			if a, ok := unwrap(d.Algorithm).(interface{ Resolution() time.Duration }); ok {
				r := a.Resolution().Microseconds()
				now = (now + r - 1) / r * r
			}
			return d, now
		}}},
	{name: "clock of the client", rules: "clock/shared step/two-clients",
		bugs: bugs{second: func(r *reference) ratelimit.Store {
			return &reference{r.shared, func() int64 { return r.clock() - time.Second.Microseconds() }, r.bugs}
		}}},
	{name: "clock stops in the year 2096", rules: "clock/range",
		bugs: clocks(func(now int64) int64 { return min(now, 4_000_000_000_000_000) })},
	{name: "clock never steps back", rules: "clock/back-within-window clock/back-beyond-window step/results",
		bugs: bugs{clock: func(r *reference, now int64) int64 {
			r.last = max(r.last, now)
			return r.last
		}}},
	{name: "clock steps forward by a minute at most", rules: "clock/forward step/results",
		bugs: bugs{clock: func(r *reference, now int64) int64 {
			if r.last > 0 {
				now = min(now, r.last+60e6)
			}
			r.last = now
			return now
		}}},
	{name: "shift of stamps not written", rules: "clock/back-beyond-window",
		bugs: bugs{stepped: func(_ *reference, d ratelimit.Demand, _ []byte, s *step) {
			if d.Op == ratelimit.Look || !s.res.Allowed {
				s.keep = 0
			}
		}}},
	{name: "time to live too short", rules: "expiry/not-early expiry/real-time expiry/real-window-grows",
		bugs: bugs{until: func(_ cell, now int64, keep time.Duration) int64 { return now + keep.Microseconds()/2 }}},
	{name: "time to live in whole milliseconds", rules: "expiry/not-early",
		bugs: bugs{until: func(_ cell, now int64, keep time.Duration) int64 { return now + keep.Milliseconds()*1000 - now%1000 }}},
	{name: "time to live not renewed", rules: "expiry/not-early expiry/window-grows expiry/real-window-grows expiry/real-time",
		bugs: bugs{until: func(old cell, now int64, keep time.Duration) int64 {
			if len(old.state) > 0 {
				return old.until
			}
			return now + keep.Microseconds()
		}}},
}

// eachOnItsOwn decides the demands of a TakeAll one after the other.
func eachOnItsOwn(stop bool) bugs {
	return bugs{all: func(r *reference, _ context.Context, ds []ratelimit.Demand, out []ratelimit.Result) error {
		for i, d := range ds {
			s := r.one(d)
			if s.err != nil {
				return s.err
			}
			if out[i] = s.res; stop && !s.res.Allowed {
				return nil
			}
		}
		return nil
	}}
}

// rewrites returns a bug that changes what a TakeAll is asked or answers.
func rewrites(f func(r *reference, ds []ratelimit.Demand, out []ratelimit.Result) error) bugs {
	return bugs{all: func(r *reference, _ context.Context, ds []ratelimit.Demand, out []ratelimit.Result) error {
		return f(r, ds, out)
	}}
}

var takeAllFaults = []fault{
	{name: "part of a TakeAll charged", rules: "takeall/none-leaves-a-trace takeall/operations takeall/results takeall/storm takeall/corrupt-state " +
		"takeall-keys/none-leaves-a-trace takeall-keys/results takeall-keys/storm", bugs: eachOnItsOwn(false)},
	{name: "TakeAll stops at the first refusal", rules: "takeall/results-of-a-refusal takeall/none-leaves-a-trace", bugs: eachOnItsOwn(true)},
	{name: "results of a TakeAll in another order", rules: "takeall/admits-all takeall-keys/admits-all takeall/results",
		bugs: rewrites(func(r *reference, ds []ratelimit.Demand, out []ratelimit.Result) error {
			err := r.several(ds, out)
			slices.Reverse(out)
			return err
		})},
	{name: "a refused TakeAll answers what each would have done", rules: "takeall/results-of-a-refusal takeall/results",
		bugs: rewrites(func(r *reference, ds []ratelimit.Demand, out []ratelimit.Result) error {
			err := r.several(ds, out)
			if err == nil && !allowed(out) {
				r.mu.Lock()
				defer r.mu.Unlock()
				for i, d := range ds {
					out[i] = r.run(d, r.now(), ratelimit.Demand.Step).res
				}
			}
			return err
		})},
	{name: "TakeAll of 32 demands at most", rules: "takeall/many",
		bugs: rewrites(func(r *reference, ds []ratelimit.Demand, out []ratelimit.Result) error {
			for len(ds) > 32 {
				if err := r.several(ds[:32], out[:32]); err != nil {
					return err
				}
				ds, out = ds[32:], out[32:]
			}
			return r.several(ds, out)
		})},
	{name: "clock read for each demand", rules: "takeall/one-reading",
		bugs: bugs{demand: func(r *reference, d ratelimit.Demand, _ int64) (ratelimit.Demand, int64) { return d, r.clock() }}},
	{name: "state used after Step for undoing", rules: "takeall/state",
		bugs: rewrites(func(r *reference, ds []ratelimit.Demand, out []ratelimit.Result) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			now, before := r.now(), make([]cell, len(ds))
			refused := false
			for i, d := range ds {
				before[i] = r.states[identityOf(d)]
				next, keep, res := d.Step(before[i].state, now)
				r.put(d, now, step{next: next, keep: keep})
				out[i], refused = res, refused || !res.Allowed
			}
			for i, d := range ds {
				if refused {
					r.states[identityOf(d)] = before[i]
					_, _, out[i] = d.Look(bytes.Clone(before[i].state), now)
				}
			}
			return nil
		})},
	{name: "out written after the return", rules: "takeall/slices",
		bugs: func() bugs {
			var last []ratelimit.Result
			return rewrites(func(r *reference, ds []ratelimit.Demand, out []ratelimit.Result) error {
				clear(last)
				last = out
				return r.several(ds, out)
			})
		}()},
	{name: "TakeAll takes before it is unsupported", rules: "errors/unsupported-writes-nothing",
		bugs: rewrites(func(r *reference, ds []ratelimit.Demand, _ []ratelimit.Result) error {
			r.one(ds[0])
			return errors.ErrUnsupported
		})},
	{name: "second client on another state", rules: "step/two-clients takeall/two-clients concurrency/count-two-clients",
		bugs: bugs{second: func(r *reference) ratelimit.Store {
			return &reference{&shared{states: make(map[identity]cell)}, r.clock, r.bugs}
		}}},
}

var errorFaults = []fault{
	{name: "validation skipped", rules: "errors/validation takeall/validation",
		bugs: bugs{check: func(ctx context.Context, ds []ratelimit.Demand, _ []ratelimit.Result) error {
			if slices.ContainsFunc(ds, func(d ratelimit.Demand) bool { return d.Algorithm == nil }) {
				return ratelimit.ErrInvalidDemand
			}
			return ctx.Err()
		}}},
	{name: "duplicates allowed", rules: "takeall/validation",
		bugs: bugs{check: func(ctx context.Context, ds []ratelimit.Demand, out []ratelimit.Result) error {
			err := validate(ctx, ds, out)
			if errors.Is(err, ratelimit.ErrDuplicateDemand) {
				return nil
			}
			return err
		}}},
	{name: "closed before valid", rules: "errors/before-io",
		bugs: bugs{check: func(ctx context.Context, ds []ratelimit.Demand, out []ratelimit.Result) error {
			if err := ratelimit.CheckTake(ctx, ds[0]); err != nil {
				return ratelimit.ErrClosed
			}
			return nil
		}}},
	{name: "context ignored", rules: "errors/ended-context",
		bugs: bugs{check: func(_ context.Context, ds []ratelimit.Demand, _ []ratelimit.Result) error {
			return ratelimit.CheckTake(context.Background(), ds[0])
		}}},
	{name: "closed store refuses", rules: "errors/closed",
		bugs: bugs{check: validate}},
	{name: "sent again when the context ends", rules: "errors/ending-context",
		bugs: bugs{take: func(r *reference, ctx context.Context, d ratelimit.Demand) step {
			s := r.one(d)
			if _, ok := ctx.Deadline(); ok && d.Op == ratelimit.Take {
				return r.one(d)
			}
			return s
		}}},
	{name: "recorded but unavailable", rules: "errors/ending-context",
		bugs: bugs{take: func(r *reference, ctx context.Context, d ratelimit.Demand) step {
			s := r.one(d)
			if d.Op == ratelimit.Take && s.res.Remaining%2 == 0 {
				return step{err: ratelimit.ErrUnavailable}
			}
			return s
		}}},
	{name: "deadline of another kind", rules: "errors/ending-context",
		bugs: bugs{take: func(r *reference, ctx context.Context, d ratelimit.Demand) step {
			s := r.one(d)
			if d.Op == ratelimit.Take {
				s.err = context.DeadlineExceeded
			}
			return s
		}}},
	{name: "late return", rules: "errors/ending-context",
		bugs: bugs{take: func(r *reference, _ context.Context, d ratelimit.Demand) step {
			if s := r.one(d); s.res.Remaining != ratelimit.MaxUnits-1 {
				return s
			}
			time.Sleep(2100 * time.Millisecond)
			return step{err: ratelimit.ErrOutcomeUnknown}
		}}},
	{name: "corrupt state is an empty one", rules: "errors/corrupt-state takeall/corrupt-state",
		bugs: bugs{stepped: func(_ *reference, d ratelimit.Demand, _ []byte, s *step) {
			if s.err != nil {
				s.err = nil
				s.next, s.keep, s.res = d.Step(nil, start)
			}
		}}},
	{name: "corrupt state is unavailable", rules: "errors/corrupt-state takeall/corrupt-state",
		bugs: bugs{stepped: func(_ *reference, _ ratelimit.Demand, _ []byte, s *step) {
			if s.err != nil {
				s.err = ratelimit.ErrUnavailable
			}
		}}},
	{name: "no script is unavailable", rules: "errors/no-script",
		bugs: bugs{take: func(r *reference, _ context.Context, d ratelimit.Demand) step {
			if d.Algorithm.Script().Source == "" {
				return step{err: ratelimit.ErrUnavailable}
			}
			return r.one(d)
		}}},
}

// lostUpdate reads and writes a state without holding on to it in between.
var lostUpdate = bugs{
	take: func(r *reference, _ context.Context, d ratelimit.Demand) step {
		r.mu.Lock()
		now := r.now()
		s := r.run(d, now, ratelimit.Demand.Step)
		r.mu.Unlock()
		runtime.Gosched()
		r.mu.Lock()
		defer r.mu.Unlock()
		r.put(d, now, s)
		return s
	},
	all: func(r *reference, _ context.Context, ds []ratelimit.Demand, out []ratelimit.Result) error {
		r.mu.Lock()
		now, steps := r.now(), make([]step, len(ds))
		for i, d := range ds {
			_, _, out[i] = d.Look(bytes.Clone(r.states[identityOf(d)].state), now)
			steps[i] = r.run(d, now, ratelimit.Demand.Step)
		}
		r.mu.Unlock()
		runtime.Gosched()
		r.mu.Lock()
		defer r.mu.Unlock()
		for i, d := range ds {
			if allowed(out) {
				r.put(d, now, steps[i])
			}
		}
		return nil
	},
}

var concurrencyFaults = []fault{
	{name: "lost update", rules: "concurrency/count concurrency/count-two-clients concurrency/count-scripts-dropped concurrency/weights concurrency/give-backs " +
		"concurrency/keys concurrency/rolling-window takeall/storm takeall-keys/storm", bugs: lostUpdate},
	{name: "panic in a call", rules: "concurrency/count op/take",
		bugs: bugs{take: func(*reference, context.Context, ratelimit.Demand) step { panic("planted") }}},
	{name: "goroutine ended in a call", rules: "op/take",
		bugs: bugs{take: func(*reference, context.Context, ratelimit.Demand) step { runtime.Goexit(); return step{} }}},
}

// impure is an algorithm that does not keep its contract.
type impure struct {
	ratelimit.Algorithm
	calls *atomic.Int64
}

func (a impure) Step(state []byte, now int64, d ratelimit.Demand) ([]byte, time.Duration, ratelimit.Result) {
	d.Algorithm = a.Algorithm
	next, keep, res := a.Algorithm.Step(state, now, d)
	res.Remaining += a.calls.Add(1) % 2
	return next, keep, res
}

var algorithmFaults = []fault{
	{name: "algorithm with a memory", rules: "algorithm/pure algorithm/values",
		algorithms: []func(ratelimit.Limit) ratelimit.Algorithm{func(limit ratelimit.Limit) ratelimit.Algorithm {
			return impure{slidingLog(1)(limit), new(atomic.Int64)}
		}}},
}
