package conformance

import (
	"time"

	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/holdmodel"
)

// A heldLimit is a limit with holds of a random run. Its parameters change.
type heldLimit struct {
	name   string
	kind   kind
	holder driver.Holder
	limit  holdmodel.Limit
}

// An inside is what the model of holds says of a state of one of ownKinds. Servers keep the state
// of the algorithm inside apart, which may run out before the holds.
type inside struct {
	holdmodel.Key
	over bool // the clock has reached Ends
}

var heldNames = []string{"held", "more", "most"}

// addHolds makes most limits of a run limits with holds, on few keys. Two runs have all kinds of
// this module: each has the log.
func (r *run) addHolds() {
	id := 1 | r.rand.Uint64()>>r.rand.IntN(60)
	r.ids = []uint64{id, id ^ 1<<(32+r.rand.IntN(32))}
	r.limits = r.limits[:1]
	if !r.keys {
		r.keyNames = r.keyNames[:1]
	}
	r.insides = make(map[identity]*inside)
	for i, name := range heldNames {
		k := r.e.kinds[0]
		if others := r.e.kinds[1:]; i > 0 {
			k = others[(int(r.seed/2%uint64(len(others)))*2+i-1)%len(others)]
		}
		r.held = append(r.held, heldLimit{name: name, kind: k})
		r.changeHeld(i)
	}
}

// changeHeld chooses other parameters for the i-th limit with holds.
func (r *run) changeHeld(i int) {
	l := &r.held[i]
	l.holder, l.limit = l.kind.make(driver.Limit{
		Name:   l.name,
		Max:    pick(r.rand, 3, 10, 40, driver.MaxUnits),
		Window: pick(r.rand, 2*time.Minute+7*time.Microsecond, 10*time.Minute, time.Hour),
	}, pick(r.rand, 2*time.Minute, 6*time.Minute+time.Microsecond, time.Hour))
}

// heldOps is the number of operations of heldDemand.
const heldOps = 20

// heldDemand returns a random demand that CheckTake accepts, by the number of an operation.
func (r *run) heldDemand(key string, a driver.Holder, id uint64, op int) driver.Demand {
	most, length := a.Limit().Max, a.HoldTimeout()
	n := pick(r.rand, 1, min(2, most), 1+r.rand.Int64N(min(most, 12)), 1+r.rand.Int64N(most))
	switch {
	case op < 6:
		return holdFor(key, a, id, n, pick(r.rand, 0, 0, length/2, length, 3*length))
	case op < 8:
		return hold(key, a, id, 0)
	case op < 13:
		n = r.rand.Int64N(n+1) * pick[int64](r.rand, 1, 1, 2)
		return settle(key, a, id, min(n, driver.MaxUnits))
	case op < 15 || op < 19 && a.InFlight():
		d := peek(key, a, n)
		d.ID = pick(r.rand, id, 0)
		return d
	case op < 18:
		return take(key, a, n)
	case op < 19:
		return force(key, a, n)
	case r.rand.IntN(2) == 0:
		return reset(key, a)
	}
	return peek(key, a, 1)
}

// passed records which states inside have run out.
func (r *run) passed(now int64) {
	for _, in := range r.insides {
		in.over = in.over || in.Ends > 0 && now >= in.Ends
	}
}

// doubtful reports whether a store may or may not still have the state of d.
func (r *run) doubtful(d driver.Demand) bool {
	if _, ok := d.Algorithm.(driver.Holder); ok && r.model.over(d) {
		return true // a new one has no clock of its own
	}
	in := r.insides[identityOf(d)]
	return r.model.doubtful(d) || in != nil && in.over && r.model.now < in.Ends
}

// follow makes what was decided on the models of holds. It leaves keys on which a server may soon
// forget a state inside.
func (r *run) follow(ds []driver.Demand, results []driver.Result) {
	for i, d := range ds {
		for _, l := range r.held {
			if d.Algorithm != driver.Algorithm(l.holder) || l.kind.theirs {
				continue
			}
			if d.Least > 0 {
				d.N, d.Least = results[i].Units, 0
			}
			if !allowed(results) {
				d = peek(d.Key, l.holder, 1)
			}
			in := r.insides[identityOf(d)]
			if in == nil {
				in = new(inside)
				r.insides[identityOf(d)] = in
			}
			before := in.Ends
			if in.Do(l.limit, r.model.now, d); in.Ends != before {
				in.over = false
			}
			left := in.Ends - r.model.now // it may be written with this time to live
			if left > 0 && left < watchdog.Microseconds() {
				r.leave(d.Key)
			}
		}
	}
}

// leave uses another key in place of one.
func (r *run) leave(key string) {
	for i, name := range r.keyNames {
		if name == key {
			r.keyNames[i] = r.e.key()
		}
	}
}
