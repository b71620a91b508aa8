package conformance

import (
	"cmp"
	"context"
	"maps"
	"runtime"
	"slices"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// inParts decides a TakeAll in parts of size demands, each as one.
func inParts(size int) bugs {
	return rewrites(func(r *reference, ds []driver.Demand, out []driver.Result) error {
		for len(ds) > size {
			if err := r.several(ds[:size], out[:size]); err != nil {
				return err
			}
			ds, out = ds[size:], out[size:]
			runtime.Gosched()
		}
		return r.several(ds, out)
	})
}

// peekedFirst peeks at all demands as one. If all fit it decides them in parts of size.
func peekedFirst(size int) bugs {
	return rewrites(func(r *reference, ds []driver.Demand, out []driver.Result) error {
		peeks := slices.Clone(ds)
		for i := range peeks {
			if peeks[i].Op > driver.OpPeek {
				return r.several(ds, out)
			}
			peeks[i].Op = driver.OpPeek
		}
		if err := r.several(peeks, out); err != nil || !allowed(out) {
			return err
		}
		runtime.Gosched()
		return inParts(size).all(r, nil, ds, out)
	})
}

// givesBack takes one demand after the other, and restores the states when one is refused.
func givesBack(r *reference, ds []driver.Demand, out []driver.Result) error {
	before := make(map[identity]cell)
	for i, d := range ds {
		r.mu.Lock()
		before[r.id(d)] = r.states[r.id(d)]
		r.mu.Unlock()
		s := r.one(d)
		if s.err != nil {
			return s.err
		}
		if out[i] = s.res; s.res.Allowed {
			runtime.Gosched()
			continue
		}
		r.mu.Lock()
		maps.Copy(r.states, before)
		r.mu.Unlock()
		for j, d := range ds {
			if d.Op == driver.OpTake {
				d.Op = driver.OpPeek
			}
			out[j] = r.one(d).res
		}
		return nil
	}
	return nil
}

// late is a client that learns of what others did after a while. The others learn of what it did at
// once.
type late struct {
	*reference
	of     *reference
	synced time.Time
}

func (l *late) sync() {
	if time.Since(l.synced) < 5*time.Millisecond {
		return
	}
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.states, l.synced = maps.Clone(l.of.states), time.Now()
}

func (l *late) Take(ctx context.Context, d driver.Demand) (driver.Result, error) {
	l.sync()
	res, err := l.reference.Take(ctx, d)
	if err == nil {
		_, err = l.of.Take(ctx, d)
	}
	return res, err
}

var takeAllManyFaults = []fault{
	{name: "second client learns late", rules: "step/two-clients result/repeated-two-clients",
		bugs: bugs{second: func(r *reference) driver.Store {
			return &late{of: r,
				reference: &reference{&shared{states: make(map[identity]cell)}, r.clock, r.bugs}}
		}}},
	{name: "TakeAll of 60 demands at most", always: true,
		rules: "takeall/hundreds takeall-keys/hundreds", bugs: inParts(60)},
	{name: "TakeAll of 250 demands at most", always: true,
		rules: "takeall/hundreds takeall-keys/hundreds", bugs: inParts(250)},
	{name: "TakeAll of any number of demands", always: true, rules: "takeall/most",
		bugs: bugs{check: func(
			ctx context.Context, ds []driver.Demand, out []driver.Result,
		) error {
			for len(ds) > driver.MaxDemands && len(ds) == len(out) {
				ds, out = ds[1:], out[1:]
			}
			return validate(ctx, ds, out)
		}}},
	{name: "TakeAll of the most demands refused", always: true,
		rules: "takeall/most takeall/hundreds takeall-keys/hundreds",
		bugs: rewrites(func(r *reference, ds []driver.Demand, out []driver.Result) error {
			if len(ds) == driver.MaxDemands {
				return driver.ErrInvalid
			}
			return r.several(ds, out)
		})},
	{name: "TakeAll in parts of 60 after a peek",
		rules: "takeall/storm-of-hundreds takeall-keys/storm-of-hundreds", bugs: peekedFirst(60)},
	{name: "TakeAll undoes what it took",
		rules: "takeall/never-in-part takeall-keys/never-in-part",
		bugs:  rewrites(givesBack)},
	{name: "TakeAll demand by demand after a peek",
		rules: "takeall/never-in-part takeall-keys/never-in-part takeall/storm",
		bugs:  peekedFirst(1)},
	{name: "results of a TakeAll in the order of keys and limits", always: true,
		rules: "takeall/order takeall-keys/order",
		bugs: rewrites(func(r *reference, ds []driver.Demand, out []driver.Result) error {
			sorted := slices.SortedFunc(slices.Values(ds), func(a, b driver.Demand) int {
				return cmp.Or(cmp.Compare(a.Key, b.Key),
					cmp.Compare(a.Algorithm.Limit().Name, b.Algorithm.Limit().Name))
			})
			return r.several(sorted, out)
		})},
	{name: "results behind the end of out", always: true, rules: "takeall/out",
		bugs: rewrites(func(r *reference, ds []driver.Demand, out []driver.Result) error {
			if len(out) < cap(out) {
				out[:len(out)+1][len(out)] = driver.Result{}
			}
			return r.several(ds, out)
		})},
	{name: "demands behind the end of the slice", always: true, rules: "takeall/out",
		bugs: rewrites(func(r *reference, ds []driver.Demand, out []driver.Result) error {
			if len(ds) < cap(ds) {
				r.one(ds[:len(ds)+1][len(ds)])
			}
			return r.several(ds, out)
		})},
	{name: "refusals leave what out held", always: true, rules: "takeall/out",
		bugs: rewrites(func(r *reference, ds []driver.Demand, out []driver.Result) error {
			before := slices.Clone(out)
			err := r.several(ds, out)
			for i := range out {
				if !out[i].Allowed {
					out[i], out[i].Allowed = before[i], false
				}
			}
			return err
		})},
}
