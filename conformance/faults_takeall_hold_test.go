package conformance

import (
	"bytes"
	"context"
	"runtime"
	"slices"

	"github.com/truewindow/ratelimit/driver"
)

// ofHold reports whether d is of a hold: it places, renews or settles one.
func ofHold(d driver.Demand) bool { return d.Op == driver.OpHold || d.Op == driver.OpSettle }

// rewritesDemands returns a bug that changes the demands of a TakeAll. They are copies.
func rewritesDemands(change func([]driver.Demand)) bugs {
	return rewrites(func(r *reference, ds []driver.Demand, out []driver.Result) error {
		ds = slices.Clone(ds)
		change(ds)
		return r.several(ds, out)
	})
}

// firstForAll returns a bug: what the first demand of a hold in a TakeAll says counts for all of
// them.
func firstForAll(apply func(first driver.Demand, d *driver.Demand)) bugs {
	return rewritesDemands(func(ds []driver.Demand) {
		first := slices.IndexFunc(ds, ofHold)
		for i := range ds {
			if ofHold(ds[i]) {
				apply(ds[first], &ds[i])
			}
		}
	})
}

// holdTable has the units of the holds of each state.
type holdTable map[identity]map[uint64]int64

// note records what a demand has done.
func (t holdTable) note(d driver.Demand, res driver.Result) {
	id := identityOf(d)
	switch {
	case d.Op == driver.OpHold && res.Units > 0:
		if t[id] == nil {
			t[id] = make(map[uint64]int64)
		}
		t[id][d.ID] = res.Units
	case d.Op == driver.OpSettle:
		delete(t[id], d.ID)
	case d.Op == driver.OpReset:
		delete(t, id)
	}
}

// withTable returns a bug in what happens after a TakeAll that was admitted: after gets the holds
// before it. It is for one goroutine.
func withTable(after func(r *reference, t holdTable, ds []driver.Demand)) bugs {
	t := make(holdTable)
	b := rewrites(func(r *reference, ds []driver.Demand, out []driver.Result) error {
		err := r.several(ds, out)
		if err != nil || !allowed(out) {
			return err
		}
		after(r, t, ds)
		for i, d := range ds {
			t.note(d, out[i])
		}
		return nil
	})
	b.take = func(r *reference, _ context.Context, d driver.Demand) step {
		s := r.one(d)
		if s.err == nil && s.res.Allowed {
			t.note(d, s.res)
		}
		return s
	}
	return b
}

// endsOthers returns a bug: a settlement in a TakeAll ends the holds of its ID under other limits
// too, of the same key or of any.
func endsOthers(anyKey bool) bugs {
	last := make(map[identity]driver.Demand) // of each state
	return withTable(func(r *reference, t holdTable, ds []driver.Demand) {
		for _, d := range ds {
			last[identityOf(d)] = d
			for id, held := range t {
				if _, ok := held[d.ID]; !ok || d.Op != driver.OpSettle || id == identityOf(d) ||
					id.key != d.Key && !anyKey {
					continue
				}
				if other, ok := last[id]; ok {
					r.one(settle(other.Key, other.Algorithm, d.ID, 0))
				}
			}
		}
	})
}

// leavesHolds is a bug: a Reset in a TakeAll deletes the state, and not the holds.
func leavesHolds() bugs {
	return withTable(func(r *reference, t holdTable, ds []driver.Demand) {
		for _, d := range ds {
			for id, units := range t[identityOf(d)] {
				if d.Op == driver.OpReset {
					r.one(hold(d.Key, d.Algorithm, id, min(units, d.Algorithm.Limit().Max)))
				}
			}
		}
	})
}

// apartFirst returns a bug: some demands of a TakeAll are made one by one, before the others are
// decided.
func apartFirst(apart func(driver.Demand) bool) bugs {
	return rewrites(func(r *reference, ds []driver.Demand, out []driver.Result) error {
		var rest []driver.Demand
		var places []int
		for i, d := range ds {
			if apart(d) {
				s := r.one(d)
				if s.err != nil {
					return s.err
				}
				out[i] = s.res
				runtime.Gosched()
				continue
			}
			rest, places = append(rest, d), append(places, i)
		}
		if len(rest) == 0 {
			return nil
		}
		results := make([]driver.Result, len(rest))
		err := r.several(rest, results)
		for i, place := range places {
			out[place] = results[i]
		}
		return err
	})
}

// apartLast returns a bug: when all demands of a TakeAll fit, some are made one by one by do, after
// the others, which are decided as one.
func apartLast(
	apart func(driver.Demand) bool, do func(*reference, driver.Demand) driver.Result,
) bugs {
	return rewrites(func(r *reference, ds []driver.Demand, out []driver.Result) error {
		granted, err := r.decideBut(apart, ds, out)
		for i, d := range granted {
			if apart(d) {
				runtime.Gosched()
				out[i] = do(r, d)
			}
		}
		return err
	})
}

// decideBut is several without the steps of some demands. It returns what was granted, if all fit.
func (r *reference) decideBut(
	apart func(driver.Demand) bool, ds []driver.Demand, out []driver.Result,
) (granted []driver.Demand, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	for i, d := range ds {
		s := r.run(d, now, driver.Demand.Peek)
		if s.err != nil {
			return nil, s.err
		}
		out[i] = s.res
		r.put(d, now, s)
	}
	if !allowed(out) {
		return nil, nil
	}
	granted = driver.Grant(ds, out)
	for i, d := range granted {
		if !apart(d) {
			s := r.run(d, now, driver.Demand.Step)
			out[i] = s.res
			r.put(d, now, s)
		}
	}
	return granted, nil
}

// everyDemand is all of them.
func everyDemand(driver.Demand) bool { return true }

// oneOf makes d.
func oneOf(r *reference, d driver.Demand) driver.Result { return r.one(d).res }

// settleNow settles a hold so that all units count now.
func settleNow(r *reference, d driver.Demand) driver.Result {
	h := d.Algorithm.(driver.Holder)
	if r.one(hold(d.Key, h, d.ID, 0)).res.Units == 0 || d.N == 0 || h.InFlight() {
		return r.one(d).res
	}
	r.one(settle(d.Key, h, d.ID, 0))
	return r.one(force(d.Key, h, d.N)).res
}

func settlement(d driver.Demand) bool { return d.Op == driver.OpSettle }

func renewal(d driver.Demand) bool { return d.Op == driver.OpHold && d.N == 0 }

// emptyIfCorrupt is a bug: in a TakeAll, a demand of a hold on a corrupt state is decided on an
// empty one.
var emptyIfCorrupt = rewrites(func(
	r *reference, ds []driver.Demand, out []driver.Result,
) error {
	r.mu.Lock()
	now := r.now()
	for _, d := range ds {
		if _, keep, _ := d.Peek(bytes.Clone(r.states[identityOf(d)].state), now); ofHold(d) &&
			keep < 0 {
			delete(r.states, identityOf(d))
		}
	}
	r.mu.Unlock()
	return r.several(ds, out)
})

var takeAllHoldFaults = []fault{
	{name: "a settlement ends the holds of its ID under all limits of the key", always: true,
		rules: "takeall/results takeall/two-clients", bugs: endsOthers(false)},
	{name: "one hold of an ID for all limits of a key", always: true,
		rules: "takeall/results takeall/storm",
		bugs: rewrites(func(r *reference, ds []driver.Demand, out []driver.Result) error {
			err := r.several(ds, out)
			for i, d := range ds {
				if err == nil && allowed(out) && d.Op == driver.OpHold &&
					slices.ContainsFunc(ds[:i], func(before driver.Demand) bool {
						return before.Op == d.Op && before.Key == d.Key && before.ID == d.ID
					}) {
					r.one(settle(d.Key, d.Algorithm, d.ID, 0))
				}
			}
			return err
		})},
	{name: "a settlement ends all holds of its ID", always: true,
		rules: "takeall-keys/results", bugs: endsOthers(true)},
	{name: "settlements of a TakeAll first", always: true,
		rules: "takeall/results takeall/state takeall-keys/results",
		bugs:  apartFirst(settlement)},
	{name: "settlements of a TakeAll last, one by one", rules: "takeall/storm takeall-keys/storm",
		bugs: apartLast(settlement, oneOf)},
	{name: "renewals of a TakeAll first", always: true,
		rules: "takeall/results", bugs: apartFirst(renewal)},
	{name: "a hold on a corrupt state in a TakeAll", always: true, rules: "hold/corrupt",
		bugs: emptyIfCorrupt},
	{name: "a reset in a TakeAll leaves the holds", always: true, rules: "takeall/results",
		bugs: leavesHolds()},
	{name: "the first ID for all holds of a TakeAll", always: true,
		rules: "takeall/results takeall-keys/results",
		bugs:  firstForAll(func(first driver.Demand, d *driver.Demand) { d.ID = first.ID })},
	{name: "the first HoldTimeout for all holds of a TakeAll", always: true,
		rules: "takeall/results takeall-keys/results",
		bugs: firstForAll(func(first driver.Demand, d *driver.Demand) {
			h := d.Algorithm.(driver.Holder).HoldTimeout()
			if t := first.HoldTimeout; d.Op == driver.OpHold && t >= h/16 && t <= 16*h {
				d.HoldTimeout = t
			}
		})},
	{name: "the first units for all holds of a TakeAll", always: true,
		rules: "takeall/results takeall-keys/results",
		bugs: firstForAll(func(first driver.Demand, d *driver.Demand) {
			if first.Op == d.Op && d.N > 0 && d.Least == 0 {
				d.N = min(first.N, d.Algorithm.Limit().Max)
			}
		})},
	{name: "16 holds of a TakeAll at most", always: true, rules: "takeall/many",
		bugs: rewritesDemands(func(ds []driver.Demand) {
			n := 0
			for i := range ds {
				if ofHold(ds[i]) {
					if n++; n > 16 {
						ds[i] = peek(ds[i].Key, ds[i].Algorithm, 1)
					}
				}
			}
		})},
	{name: "settlements of a TakeAll count when they are made", always: true,
		rules: "settle/instant", bugs: apartLast(settlement, settleNow)},
	{name: "parts of their own for holds in a TakeAll", always: true,
		rules: "takeall/results",
		bugs: rewrites(func(r *reference, ds []driver.Demand, out []driver.Result) error {
			granted, err := r.decideBut(everyDemand, ds, out)
			for i, d := range granted {
				if d.Op == driver.OpHold {
					d = ds[i]
				}
				out[i] = r.one(d).res
			}
			return err
		})},
}
