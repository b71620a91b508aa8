package conformance

import (
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/holdmodel"
)

// timeout is that of most limits with holds.
const timeout = 2 * time.Minute

// kinds are the limits with holds that the rules about holds use, whatever Options.Algorithms.
var kinds = []holdmodel.Kind{
	func(l driver.Limit, timeout time.Duration) (driver.Holder, holdmodel.Limit) {
		return algorithm.Budget(algorithm.SlidingLog(l)).WithTimeout(timeout), holdmodel.Limit{
			Inside: holdmodel.Log{Of: l, Resolution: time.Microsecond}, Limit: l, Timeout: timeout}
	},
	kindOf(func(l driver.Limit) driver.Algorithm { return algorithm.FixedWindow(l) }),
	kindOf(func(l driver.Limit) driver.Algorithm { return algorithm.GCRA(l) }),
	kindOf(func(l driver.Limit) driver.Algorithm { return algorithm.SlidingWindowCounter(l) }),
	func(l driver.Limit, timeout time.Duration) (driver.Holder, holdmodel.Limit) {
		a := algorithm.InFlight(l.Name, l.Max).WithTimeout(timeout)
		return a, holdmodel.Limit{Limit: a.Limit(), Timeout: timeout}
	},
}

func kindOf(newAlgorithm func(driver.Limit) driver.Algorithm) holdmodel.Kind {
	return func(l driver.Limit, timeout time.Duration) (driver.Holder, holdmodel.Limit) {
		a := newAlgorithm(l)
		return algorithm.Budget(a).WithTimeout(timeout),
			holdmodel.Limit{Inside: a, Limit: l, Timeout: timeout}
	}
}

// A heldKey is one key under a limit with holds, on the store and in the model. Both must decide
// alike.
type heldKey struct {
	*env
	kind   holdmodel.Kind
	key    string
	holder driver.Holder
	limit  holdmodel.Limit
	model  holdmodel.Key
}

// newHeldKey returns a key that nothing else uses.
func (e *env) newHeldKey(kind holdmodel.Kind, most int64) *heldKey {
	h := &heldKey{env: e, kind: kind, key: e.key()}
	h.change(most, timeout)
	return h
}

// change changes the parameters.
func (h *heldKey) change(most int64, timeout time.Duration) {
	h.holder, h.limit = h.kind(driver.Limit{Name: "held", Max: most, Window: window}, timeout)
}

// held returns a case that runs check on keys of a limit of 10, of each kind.
func held(check func(*heldKey)) func(*env) {
	return func(e *env) {
		for _, kind := range kinds {
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
	return func(e *env) { check(e.newHeldKey(kinds[0], 10)) }
}

// do decides a demand, which must have the result of the model.
func (h *heldKey) do(d driver.Demand) driver.Result {
	got := h.env.do(d)
	if want := h.model.Do(h.limit, h.clock.now(), d); !same(got, want) {
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
