package conformance

import (
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/holdmodel"
)

// timeout is that of most limits with holds.
const timeout = 2 * time.Minute

// A kind makes limits with holds of one algorithm.
type kind struct {
	make holdmodel.Kind
	// theirs means an algorithm of Options, whose holds no model knows: the store must return what
	// its Step returns. Its time-out is its own.
	theirs bool
}

// ownKinds are the limits with holds that the rules about holds use whatever Options.Algorithms.
var ownKinds = []kind{
	{make: heldLog},
	kindOf(func(l driver.Limit) driver.Algorithm { return algorithm.FixedWindow(l) }),
	kindOf(func(l driver.Limit) driver.Algorithm { return algorithm.GCRA(l) }),
	kindOf(func(l driver.Limit) driver.Algorithm { return algorithm.SlidingWindowCounter(l) }),
	{make: inFlight},
}

func heldLog(l driver.Limit, timeout time.Duration) (driver.Holder, holdmodel.Limit) {
	return algorithm.Budget(algorithm.SlidingLog(l)).WithTimeout(timeout), holdmodel.Limit{
		Inside: holdmodel.Log{Of: l, Resolution: time.Microsecond}, Limit: l, Timeout: timeout}
}

func inFlight(l driver.Limit, timeout time.Duration) (driver.Holder, holdmodel.Limit) {
	a := algorithm.InFlight(l.Name, l.Max).WithTimeout(timeout)
	return a, holdmodel.Limit{Limit: a.Limit(), Timeout: timeout}
}

func kindOf(newAlgorithm func(driver.Limit) driver.Algorithm) kind {
	return kind{make: func(
		l driver.Limit, timeout time.Duration,
	) (driver.Holder, holdmodel.Limit) {
		a := newAlgorithm(l)
		return algorithm.Budget(a).WithTimeout(timeout),
			holdmodel.Limit{Inside: a, Limit: l, Timeout: timeout}
	}}
}

// theirKind returns the kind of an algorithm of Options, if it has holds.
func theirKind(newAlgorithm func(driver.Limit) driver.Algorithm) (k kind, ok bool) {
	_, ok = newAlgorithm(driver.Limit{Name: "held", Max: 10, Window: window}).(driver.Holder)
	return kind{theirs: true, make: func(
		l driver.Limit, _ time.Duration,
	) (driver.Holder, holdmodel.Limit) {
		a := newAlgorithm(l).(driver.Holder)
		return a, holdmodel.Limit{Limit: a.Limit(), Timeout: a.HoldTimeout()}
	}}, ok
}

// A heldKey is one key under a limit with holds, on the store and in the model. Both must decide
// alike.
type heldKey struct {
	*env
	kind    kind
	key     string
	holder  driver.Holder
	timeout time.Duration // before it was changed
	limit   holdmodel.Limit
	model   holdmodel.Key
	steps   *model // the model of a kind that is theirs
}

// newHeldKey returns a key that nothing else uses.
func (e *env) newHeldKey(kind kind, most int64) *heldKey {
	h := &heldKey{env: e, kind: kind, key: e.key(), steps: newModel(e.clock.now())}
	h.change(most, timeout)
	h.timeout = h.holder.HoldTimeout()
	return h
}

// change changes the parameters.
func (h *heldKey) change(most int64, timeout time.Duration) {
	h.holder, h.limit = h.kind.make(driver.Limit{Name: "held", Max: most, Window: window}, timeout)
}

// decide returns what the model decides.
func (h *heldKey) decide(d driver.Demand) driver.Result {
	if !h.kind.theirs {
		return h.model.Do(h.limit, h.clock.now(), d)
	}
	h.steps.set(h.clock.now())
	results, writes := h.steps.decide([]driver.Demand{d})
	h.steps.commit(writes)
	return results[0]
}

// held returns a case that runs check on keys of a limit of 10, of each kind.
func held(check func(*heldKey)) func(*env) {
	return func(e *env) {
		for _, kind := range e.kinds {
			check(e.newHeldKey(kind, 10))
		}
	}
}

// budgets is held without calls in flight, which have no takes and record nothing.
func budgets(check func(*heldKey)) func(*env) {
	return held(func(h *heldKey) {
		if !h.holder.InFlight() {
			check(h)
		}
	})
}

// logs is held for logs.
func logs(check func(*heldKey)) func(*env) {
	return func(e *env) { check(e.newHeldKey(ownKinds[0], 10)) }
}

// do decides a demand, which must have the result of the model.
func (h *heldKey) do(d driver.Demand) driver.Result {
	got := h.env.do(d)
	if want := h.decide(d); !same(got, want) {
		h.fatalf("%v of %d under %s: got %s, want %s", d.Op, d.N, h.holder.Name(),
			holdmodel.Show(got), holdmodel.Show(want))
	}
	return got
}

// want is do for a demand that must have these Units.
func (h *heldKey) want(d driver.Demand, allowed bool, units int64) {
	if res := h.do(d); res.Allowed != allowed || res.Units != units {
		h.fatalf("%v of %d under %s returned Allowed %t and %d Units, want %t and %d", d.Op, d.N,
			h.holder.Name(), res.Allowed, res.Units, allowed, units)
	}
}

func (h *heldKey) hold(id uint64, n int64) { h.want(hold(h.key, h.holder, id, n), true, n) }

func (h *heldKey) holdRefused(id uint64, n int64) {
	h.want(hold(h.key, h.holder, id, n), false, 0)
}

// renew renews a hold of some units, or of 0 that is not known.
func (h *heldKey) renew(id uint64, units int64) {
	h.want(hold(h.key, h.holder, id, 0), true, units)
}

// settle settles a hold, and checks how many units are recorded.
func (h *heldKey) settle(id uint64, n, recorded int64) {
	if h.holder.InFlight() {
		recorded = 0
	}
	h.want(settle(h.key, h.holder, id, n), true, recorded)
}

// left checks how many units are free.
func (h *heldKey) left(want int64) {
	if got := h.do(peek(h.key, h.holder, 1)).Remaining; got != want {
		h.fatalf("%d of %d units are left under %s, want %d", got, h.limit.Limit.Max,
			h.holder.Name(), want)
	}
}

// longest is how long a hold of this length may last.
func longest(length time.Duration) time.Duration { return length * 9 / 8 }

// inFlight reports whether the limits have no takes.
func (k kind) inFlight() bool {
	holder, _ := k.make(driver.Limit{Name: "held", Max: 10, Window: window}, timeout)
	return holder.InFlight()
}
