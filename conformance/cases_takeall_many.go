package conformance

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/truewindow/ratelimit/driver"
)

const saysMost = "There are at most [MaxDemands] of them."

var takeAllManyRules = []rule{
	{name: "takeall/order", says: saysOut, check: func(e *env) { checkAnyOrder(e, e.limits(7)) }},
	{name: "takeall/out", says: saysOut, check: checkOut},
	{name: "takeall/most", says: saysMost + " " + saysCheck, check: checkMost},
	{name: "takeall/hundreds", says: saysAtomic + " " + saysUnsupported,
		check: func(e *env) { checkHundreds(e, (*env).limits) }},
	{name: "takeall/storm-of-hundreds", says: saysAtomic + " " + saysShared,
		check: func(e *env) { checkHundredsAtOnce(e, (*env).limits) }},
	{name: "takeall/never-in-part", says: saysAtomic + " " + saysShared,
		check: func(e *env) { checkNeverInPart(e, false) }},

	{name: "takeall-keys/order", says: saysOut,
		check: func(e *env) { checkAnyOrder(e, e.spread(7)) }},
	{name: "takeall-keys/hundreds", says: saysAtomic + " " + saysUnsupported,
		check: func(e *env) { checkHundreds(e, (*env).spread) }},
	{name: "takeall-keys/storm-of-hundreds", says: saysAtomic + " " + saysShared,
		check: func(e *env) { checkHundredsAtOnce(e, (*env).spread) }},
	{name: "takeall-keys/never-in-part", says: saysAtomic + " " + saysShared,
		check: func(e *env) { checkNeverInPart(e, true) }},
}

// checkAnyOrder makes the same demands in several orders. Each result shows which demand it belongs
// to.
func checkAnyOrder(e *env, ds []driver.Demand) {
	used := int64(0)
	for round := range 8 {
		asked := slices.Clone(ds)
		switch round {
		case 0:
		case 1:
			slices.Reverse(asked)
		default:
			e.rand.Shuffle(len(asked), func(i, j int) { asked[i], asked[j] = asked[j], asked[i] })
		}
		used++
		for i, res := range e.all(asked...) {
			limit := asked[i].Algorithm.Limit()
			if !res.Allowed || res.Limit.Max != limit.Max || res.Remaining != limit.Max-used {
				e.fatalf("permutation %d: demand %d under %v returned %+v, want Remaining %d",
					round, i, limit, res, limit.Max-used)
			}
		}
	}
}

// checkOut passes an out that is not zero, and slices that have more demands and results beyond
// their ends.
func checkOut(e *env) {
	mark := driver.Result{Allowed: true, Source: driver.SourceOpen, Limit: driver.Limit{Max: -1},
		Remaining: -1, Units: -1, RetryAfter: -1, ResetAfter: -1}
	for _, refused := range []bool{false, true} {
		ds := e.limits(5)
		if refused {
			e.admit(force(ds[1].Key, ds[1].Algorithm, 50))
		}
		out := slices.Repeat([]driver.Result{mark}, 5)
		if err := e.store.TakeAll(e.ctx, ds[:3], out[:3]); err != nil {
			e.fatalf("TakeAll: %w", err)
		}
		for i, res := range out {
			if i >= 3 && res != mark {
				e.fatalf("the store wrote beyond the end of out")
			}
			fits, limit := !refused || i != 1, ds[i].Algorithm.Limit().Max
			if i < 3 && (res.Allowed != fits || res.Limit.Max != limit || res.Remaining < 0 ||
				res.Units < 0 || res.RetryAfter < 0 || res.ResetAfter < 0 ||
				res.Source != driver.SourceStore) {
				e.fatalf("result %d is %+v, want Allowed %t, Limit %d, SourceStore and no "+
					"negative number", i, res, fits, limit)
			}
		}
		for _, d := range ds[3:] {
			e.wantLeft(d.Key, d.Algorithm, d.Algorithm.Limit().Max,
				"a TakeAll of the demands before it")
		}
	}
}

// checkMost makes a TakeAll of one demand more than MaxDemands, and then one of MaxDemands.
func checkMost(e *env) {
	ds := e.limits(driver.MaxDemands + 1)
	out := make([]driver.Result, len(ds))
	e.wantCheck(fmt.Sprintf("a TakeAll of %d demands", len(ds)), e.store.TakeAll(e.ctx, ds, out),
		driver.CheckTakeAll(e.ctx, ds, out))
	for i := 0; i < len(ds); i += 16 {
		e.wantLeft(ds[i].Key, ds[i].Algorithm, ds[i].Algorithm.Limit().Max,
			"a TakeAll of too many demands")
	}
	if out := e.all(ds[1:]...); !allowed(out) {
		e.fatalf("a TakeAll of %d demands that fit returned %+v", len(out), out)
	}
}

// checkHundreds decides so many demands as one that a store may be tempted to split them. One of
// them is refused.
func checkHundreds(e *env, demands func(*env, int) []driver.Demand) {
	for _, n := range []int{61, 101, 129, 255, driver.MaxDemands} {
		ds := demands(e, n)
		for _, full := range []int{n - 1, 0, n / 2} {
			e.admit(force(ds[full].Key, ds[full].Algorithm, 2000))
			out := make([]driver.Result, n)
			err := e.store.TakeAll(e.ctx, ds, out)
			if err == nil && (allowed(out) || out[full].Allowed || !out[(full+1)%n].Allowed) {
				e.fatalf("%d demands of which only demand %d does not fit returned %+v and %+v",
					n, full, out[full], out[(full+1)%n])
			}
			if err != nil && !errors.Is(err, errors.ErrUnsupported) {
				e.fatalf("a TakeAll of %d demands: %w", n, err)
			}
			for i := 0; i < n; i += 1 + n/20 {
				if i != full {
					e.wantLeft(ds[i].Key, ds[i].Algorithm, ds[i].Algorithm.Limit().Max,
						fmt.Sprintf("a refused TakeAll of %d demands", n))
				}
			}
			e.admit(reset(ds[full].Key, ds[full].Algorithm))
		}
		out, taken := make([]driver.Result, n), int64(1)
		err := e.store.TakeAll(e.ctx, ds, out)
		if errors.Is(err, errors.ErrUnsupported) {
			taken = 0
		} else if err != nil || !allowed(out) {
			e.fatalf("a TakeAll of %d demands that fit returned the error %v", n, err)
		}
		for i := 0; i < n; i += 1 + n/20 {
			e.wantLeft(ds[i].Key, ds[i].Algorithm, ds[i].Algorithm.Limit().Max-taken,
				fmt.Sprintf("a TakeAll of %d demands", n))
		}
	}
}

// checkHundredsAtOnce has goroutines take most of many units at once, until none of some is left.
// The units of all demands must add up: those of a TakeAll that is refused are not taken, wherever
// the demand is that does not fit.
func checkHundredsAtOnce(e *env, demands func(*env, int) []driver.Demand) {
	const goroutines, each, size = 12, 4, 130
	ds := demands(e, size)
	admitted := make([]atomic.Int64, size)
	e.together(goroutines, func(g int) error {
		r := rand.New(rand.NewPCG(e.seed, uint64(g)))
		for range each {
			chosen := r.Perm(size)[:size-10]
			asked, out := make([]driver.Demand, len(chosen)),
				make([]driver.Result, len(chosen))
			for i, j := range chosen {
				asked[i] = ds[j]
			}
			if err := e.store.TakeAll(e.ctx, asked, out); errors.Is(err, errors.ErrUnsupported) {
				return nil
			} else if err != nil {
				return err
			}
			if allowed(out) {
				for _, j := range chosen {
					admitted[j].Add(1)
				}
			}
		}
		return nil
	})
	for i, d := range ds {
		e.wantLeft(d.Key, d.Algorithm, d.Algorithm.Limit().Max-admitted[i].Load(),
			fmt.Sprintf("TakeAlls of %d demands at once", size-10))
	}
}

// checkNeverInPart has goroutines compete for one unit, each together with a unit that no other
// takes. A peek at that unit of a refused TakeAll must never see it taken.
func checkNeverInPart(e *env, keys bool) {
	const takers, peekers = 8, 4
	for range e.rounds(12) {
		shared := e.key()
		last := take(shared, e.algOf("last", 1), 1)
		own := make([]driver.Demand, takers)
		for i := range own {
			if own[i] = take(shared, e.algOf(fmt.Sprint("own", i), 3), 1); keys {
				own[i].Key = e.key()
			}
		}
		var mu sync.Mutex
		won, seen := make([]bool, takers), make([]bool, takers)
		var running atomic.Int64
		running.Store(takers)
		e.together(takers+peekers, func(g int) error {
			if g < takers {
				defer running.Add(-1)
				ds, out := []driver.Demand{own[g], last}, make([]driver.Result, 2)
				if g%2 == 0 {
					slices.Reverse(ds)
				}
				err := e.store.TakeAll(e.ctx, ds, out)
				won[g] = allowed(out)
				return err
			}
			for i := g; running.Load() > 0; i++ {
				d := own[i%takers]
				res, err := e.store.Take(e.ctx, peek(d.Key, d.Algorithm, 1))
				if err != nil {
					return err
				}
				if res.Remaining != 3 {
					mu.Lock()
					seen[i%takers] = true
					mu.Unlock()
				}
			}
			return nil
		})
		winners := 0
		for i, d := range own {
			left := int64(3)
			if won[i] {
				winners++
				left = 2
			} else if seen[i] {
				e.fatalf("a peek saw a unit taken by a TakeAll that was refused")
			}
			spied := spy(d.Algorithm)
			e.wantLeft(d.Key, spied, left, "a TakeAll")
			if states := spied.seen.states; !won[i] && len(states) > 0 && len(states[0]) > 0 {
				e.fatalf("a TakeAll that was refused left a state")
			}
		}
		if winners != 1 {
			e.fatalf("%d of %d TakeAlls that need the same unit were admitted", winners, takers)
		}
	}
}
