package conformance

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

const (
	saysEach = "TakeAll evaluates all demands, even after one is refused. If a demand of a " +
		"TakeAll is refused, each Result is that of [Demand.Peek]."
	saysAsAWhole = "The results of a refused TakeAll are from SourceCache all together or not at " +
		"all: those that are Allowed were Allowed earlier too, for as many units or more, and " +
		"their Remaining and ResetAfter are not too high either."
	saysPeeked = "A Peek with keep > 0 may have written into that, so give it a copy; or store " +
		"its next and call Step on that, which may then return 0."
)

var takeAllRules = []rule{
	{name: "takeall/admits-all", says: saysAtomic + " " + saysOut,
		check: func(e *env) { checkAdmitsAll(e, e.limits(3)) }},
	{name: "takeall/none-leaves-a-trace", says: saysAtomic,
		check: func(e *env) { checkNoTrace(e, func() []driver.Demand { return e.limits(3) }) }},
	{name: "takeall/results-of-a-refusal", says: saysEach, check: checkResultsOfRefusal},
	{name: "takeall/repeated", says: saysAsAWhole,
		check: func(e *env) { checkRepeatedAll(e, only) }},
	{name: "takeall/repeated-two-clients", says: saysAsAWhole, needs: second,
		check: func(e *env) { checkRepeatedAll(e, alternate) }},
	{name: "takeall/operations",
		says: "OpForce records N units whether they fit or not, and is always allowed. " +
			saysReset, check: checkTakeAllOps},
	{name: "takeall/many",
		says:  "TakeAll decides several demands as one: all are admitted, or none leaves a trace.",
		check: checkMany},
	{name: "takeall/one-reading", says: saysClock, check: checkOneReading},
	{name: "takeall/slices", says: saysOut, check: checkSlices},
	{name: "takeall/validation", says: saysCheck, check: checkTakeAllValidation},
	{name: "takeall/corrupt-state", says: saysCorrupt, check: checkTakeAllCorrupt},
	{name: "takeall/results", says: saysStep + " " + saysPeeked,
		check: differential{several: true}.check},
	{name: "takeall/state", says: saysKeep + " " + saysPeeked,
		check: differential{several: true, seeds: 1, wrap: beHostile}.check},
	{name: "takeall/two-clients", says: saysShared, needs: second,
		check: differential{several: true, seeds: 1, store: alternate}.check},
	{name: "takeall/storm", says: saysAtomic + " " + saysShared,
		check: func(e *env) { checkStorm(e, e.limits(5)) }},

	{name: "takeall-keys/admits-all", says: saysAtomic,
		check: func(e *env) { checkAdmitsAll(e, e.spread(3)) }},
	{name: "takeall-keys/none-leaves-a-trace", says: saysAtomic,
		check: func(e *env) { checkNoTrace(e, func() []driver.Demand { return e.spread(3) }) }},
	{name: "takeall-keys/results", says: saysStep + " " + saysPeeked,
		check: differential{several: true, keys: true}.check},
	{name: "takeall-keys/storm", says: saysAtomic + " " + saysShared,
		check: func(e *env) { checkStorm(e, e.spread(5)) }},
}

func checkAdmitsAll(e *env, ds []driver.Demand) {
	for i := range ds {
		ds[i].N = int64(i) + 1
	}
	for round := int64(1); round <= 2; round++ {
		for i, res := range e.all(ds...) {
			limit := ds[i].Algorithm.Limit()
			if want := limit.Max - round*ds[i].N; !res.Allowed || res.Remaining != want ||
				res.Limit.Max != limit.Max {
				e.fatalf("demand %d of %d returned %+v, want %d remaining",
					i, len(ds), res, want)
			}
		}
		e.clock.add(time.Second)
	}
	for i, d := range ds {
		e.wantLeft(d.Key, d.Algorithm, d.Algorithm.Limit().Max-2*d.N,
			fmt.Sprintf("two TakeAlls in which demand %d takes %d units", i, d.N))
	}
}

func checkNoTrace(e *env, demands func() []driver.Demand) {
	for full := range 3 {
		ds := demands()
		for i := range ds {
			e.admit(take(ds[i].Key, ds[i].Algorithm, 1+int64(i)))
		}
		e.clock.add(time.Second)
		e.admit(force(ds[full].Key, ds[full].Algorithm, 100))
		var before []driver.Result
		var watched []spied
		asked := slices.Clone(ds)
		for i, d := range ds {
			before = append(before, e.do(peek(d.Key, d.Algorithm, 1)))
			watched = append(watched, spy(d.Algorithm))
			asked[i].Algorithm = watched[i]
		}
		for range 3 {
			if out := e.all(asked...); allowed(out) || out[full].Allowed {
				e.fatalf("with demand %d beyond its limit a TakeAll returned %+v", full, out)
			}
		}
		for i, d := range ds {
			if after := e.do(peek(d.Key, d.Algorithm, 1)); after != before[i] {
				e.fatalf("a TakeAll refused by demand %d left a trace of demand %d: %+v, was %+v",
					full, i, after, before[i])
			}
			if watched[i].seen.changed(0) {
				e.fatalf("a refused TakeAll changed the state of demand %d", i)
			}
		}
		e.admit(reset(ds[full].Key, ds[full].Algorithm))
		if !allowed(e.all(ds...)) {
			e.fatalf("a TakeAll was refused although all demands fit")
		}
	}
}

func checkResultsOfRefusal(e *env) {
	ds := e.limits(6)
	for i := range ds {
		e.admit(take(ds[i].Key, ds[i].Algorithm, 5))
		e.clock.add(time.Second)
	}
	ds[0].N = 6 // refused, as is the next, whose RetryAfter is longer
	ds[1].N = 7
	ds[2].N = 3
	ds[3].Op, ds[3].N = driver.OpForce, 50
	ds[4].Op = driver.OpReset
	ds[5].Op, ds[5].N = driver.OpPeek, 11
	for _, rotate := range []int{0, 2, 5} {
		asked := slices.Concat(ds[rotate:], ds[:rotate])
		for i, res := range e.all(asked...) {
			d := asked[i]
			n, always := d.N, d.Op > driver.OpPeek
			if always {
				n = 1
			}
			want := e.do(peek(d.Key, d.Algorithm, n))
			if always {
				want.Allowed, want.RetryAfter = true, 0
			}
			if res != want {
				e.fatalf("%v of %d in a refused TakeAll returned %+v, want %+v",
					d.Op, d.N, res, want)
			}
		}
	}
}

// checkRepeatedAll repeats a TakeAll while one of its demands is refused, or both are, and after
// each call that may change the result of either.
func checkRepeatedAll(e *env, client func(*env, int) driver.Store) {
	const most = 5
	logs := []driver.Algorithm{e.algOf("narrow", most), e.algOf("wide", 2*most)}
	events := []func(r *run, ds []driver.Demand, d driver.Demand){
		func(r *run, _ []driver.Demand, d driver.Demand) {
			r.asks(reset(d.Key, d.Algorithm))
		},
		func(r *run, _ []driver.Demand, d driver.Demand) {
			r.asks(force(d.Key, d.Algorithm, 1))
		},
		func(r *run, _ []driver.Demand, d driver.Demand) {
			r.asks(take(d.Key, d.Algorithm, d.N))
		},
		func(r *run, ds []driver.Demand, _ driver.Demand) {
			ds[0].N++
			r.asks(ds...)
		},
		func(r *run, ds []driver.Demand, _ driver.Demand) {
			ds[1].N += most
			r.asks(ds...)
			ds[0].N = max(1, ds[0].N-1)
			r.asks(ds...)
		},
		func(r *run, ds []driver.Demand, _ driver.Demand) {
			ds[0].Op = pick(r.rand, driver.OpPeek, driver.OpForce, driver.OpReset)
			r.asks(ds...)
		},
		func(r *run, _ []driver.Demand, _ driver.Demand) { r.setClock(r.retry) },
		func(r *run, _ []driver.Demand, _ driver.Demand) { r.setClock(r.retry - 1) },
		func(r *run, _ []driver.Demand, _ driver.Demand) { r.setClock(r.model.now - 1) },
		func(r *run, _ []driver.Demand, _ driver.Demand) {
			r.setClock(r.model.now + r.rand.Int64N(window.Microseconds()))
		},
	}
	for round := range e.rounds(4 * len(events)) {
		r := newRun(e, differential{several: true, store: client}, e.seed+uint64(round))
		key := e.key()
		for i := 0; i < most; i += 2 {
			r.setClock(r.model.now + 1 + r.rand.Int64N(window.Microseconds()/20))
			r.asks(take(key, logs[0], min(2, int64(most-i))))
			r.setClock(r.model.now + 1 + r.rand.Int64N(window.Microseconds()/20))
			r.asks(take(key, logs[1], 2+r.rand.Int64N(2)))
		}
		for range 4 {
			ds := []driver.Demand{
				take(key, logs[0], 1+r.rand.Int64N(3)), take(key, logs[1], 1+r.rand.Int64N(4)),
			}
			for range 4 {
				r.asks(ds...)
				r.setClock(r.model.now + r.rand.Int64N(3))
			}
			events[round%len(events)](r, slices.Clone(ds), pick(r.rand, ds...))
			for range 3 {
				r.asks(ds...)
			}
		}
		r.clean()
	}
}

func checkTakeAllOps(e *env) {
	ds := e.limits(4)
	ds[1].Algorithm = algorithm.Budget(ds[1].Algorithm)
	e.admit(hold(ds[1].Key, ds[1].Algorithm, 1, 5))
	e.admit(force(ds[0].Key, ds[0].Algorithm, 50))
	e.admit(force(ds[2].Key, ds[2].Algorithm, 50))
	ds[0].Op, ds[0].N = driver.OpForce, 50
	ds[1] = settle(ds[1].Key, ds[1].Algorithm, 1, 3)
	ds[2].Op = driver.OpReset
	ds[3].Op, ds[3].N = driver.OpPeek, 13
	if out := e.all(ds...); !allowed(out) {
		e.fatalf("a TakeAll of allowed demands and a peek that fits returned %+v", out)
	}
	e.wantLeft(ds[1].Key, ds[1].Algorithm, 8, "a settlement of 3")
	e.wantLeft(ds[2].Key, ds[2].Algorithm, 12, "a reset")
	e.wantLeft(ds[3].Key, ds[3].Algorithm, 13, "a peek")
	e.admit(take(ds[3].Key, ds[3].Algorithm, 1))
	ds[2].Op, ds[2].N = driver.OpTake, 1
	if out := e.all(ds...); allowed(out) || !out[2].Allowed || out[3].Allowed {
		e.fatalf("a TakeAll with a peek that does not fit returned %+v", out)
	}
	e.wantLeft(ds[2].Key, ds[2].Algorithm, 12, "a TakeAll that a peek refused")
}

func checkMany(e *env) {
	ds := e.limits(60)
	for range 10 {
		if out := e.all(ds...); !allowed(out) {
			e.fatalf("60 demands that all fit returned %+v", out)
		}
	}
	out := e.all(ds...)
	if out[0].Allowed || allowed(out) {
		e.fatalf("60 demands of which the first does not fit returned %+v", out)
	}
	for _, d := range ds[1:] {
		e.wantLeft(d.Key, d.Algorithm, d.Algorithm.Limit().Max-10, "ten TakeAlls")
	}
	if out := e.all(e.limits(1)...); !out[0].Allowed || out[0].Remaining != 9 {
		e.fatalf("a TakeAll of one demand returned %+v", out[0])
	}
	checkManyHolds(e)
}

// checkManyHolds places 60 holds of different IDs and units as one, and settles them.
func checkManyHolds(e *env) {
	ds := e.limits(60)
	settled := make([]driver.Demand, len(ds))
	for i, d := range ds {
		ds[i] = hold(d.Key, algorithm.Budget(d.Algorithm), uint64(i)+1, 2+int64(i%4))
		settled[i] = settle(d.Key, ds[i].Algorithm, ds[i].ID, int64(i%3))
	}
	for i, res := range e.all(ds...) {
		if res.Units != ds[i].N {
			e.fatalf("hold %d of 60 returned %+v, want %d units", i, res, ds[i].N)
		}
	}
	for i, res := range e.all(settled...) {
		if res.Units != settled[i].N {
			e.fatalf("settlement %d of 60 returned %+v, want %d units", i, res, settled[i].N)
		}
	}
	for i, d := range settled {
		e.wantLeft(d.Key, d.Algorithm, d.Algorithm.Limit().Max-d.N,
			fmt.Sprintf("settlement %d of 60", i))
	}
}

func checkOneReading(e *env) {
	e.clock.tick.Store(7)
	for range 20 {
		ds := e.limits(6)
		e.all(ds...)
		for i := range ds {
			ds[i].Op = driver.OpPeek
		}
		slices.Reverse(ds) // which doubles a difference
		out := e.all(ds...)
		for _, res := range out {
			if res.ResetAfter != out[0].ResetAfter {
				e.fatalf("one call read the clock more than once: all is free after %v and %v",
					out[0].ResetAfter, res.ResetAfter)
			}
		}
	}
}

// checkSlices uses the slices again as soon as TakeAll has returned, also when it returned because
// the context ended. The race detector finds more.
func checkSlices(e *env) {
	key := e.key()
	a, b := e.algOf("a", 1000), e.algOf("b", 1000)
	mark := driver.Result{Remaining: -1, Limit: driver.Limit{Max: -1}}
	var outs [][]driver.Result
	admitted := int64(0)
	for i := range 60 {
		ctx, cancel := e.ctx, context.CancelFunc(func() {})
		if i%2 == 1 {
			ctx, cancel = context.WithTimeout(e.ctx, time.Duration(i)*20*time.Microsecond)
		}
		ds := []driver.Demand{take(key, a, 1), take(key, b, 1)}
		asked, out := slices.Clone(ds), []driver.Result{mark, mark}
		err := e.store.TakeAll(ctx, asked, out)
		cancel()
		if !slices.Equal(asked, ds) {
			e.fatalf("the store changed the demands")
		}
		if err == nil {
			admitted++
			if out[0].Remaining < 0 || out[1].Remaining < 0 {
				e.fatalf("a Result was not set")
			}
		} else if i%2 == 0 {
			e.fatalf("TakeAll: %w", err)
		}
		asked[0], asked[1] = force(key, a, 100), force(key, b, 100)
		out[0], out[1] = mark, mark
		outs = append(outs, out)
	}
	for _, out := range outs {
		if out[0] != mark || out[1] != mark {
			e.fatalf("the store wrote to out after TakeAll had returned")
		}
	}
	if left := e.left(key, a); left > 1000-admitted || left < 1000-60 {
		e.fatalf("%d of 1000 units are left after %d of 60 demands were admitted", left, admitted)
	}
}

// checkStorm has many goroutines make two or three of ds at once, in any order, until nothing is
// left. Every state must hold what was admitted under it. Some of the limits have holds, which are
// placed and settled together. Under the twins nothing else is done, so they are always equal.
func checkStorm(e *env, ds []driver.Demand) {
	recorded := make([][]int64, 32)
	for i := range ds {
		if i%2 == 1 {
			ds[i].Algorithm = algorithm.Budget(ds[i].Algorithm)
		}
	}
	twins := []driver.Demand{
		take(ds[0].Key, algorithm.Budget(e.algOf("twin1", driver.MaxUnits)), 1),
		take(ds[len(ds)-1].Key, algorithm.Budget(e.algOf("twin2", driver.MaxUnits)), 1),
	}
	e.together(len(recorded), func(g int) error {
		s := storm{env: e, rand: newRand(e.seed, len(recorded)+g), id: uint64(g+1) << 32}
		order := newOrder(e.seed, g, len(ds))
		recorded[g] = make([]int64, len(ds))
		for range e.rounds(12) {
			chosen := order()
			asked := make([]driver.Demand, len(chosen))
			for i, j := range chosen {
				asked[i] = ds[j]
			}
			units, err := s.charge(asked)
			if err != nil {
				return err
			}
			for i, j := range chosen {
				recorded[g][j] += units[i]
			}
			if g%4 > 0 {
				err = s.wantTwins(twins)
			} else if units, err = s.charge(twins); err == nil && units[0] != units[1] {
				err = fmt.Errorf("one settlement of two holds recorded %d and %d units", units[0],
					units[1])
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	for i, d := range ds {
		limit, sum := d.Algorithm.Limit(), int64(0)
		for g := range recorded {
			sum += recorded[g][i]
		}
		if left := e.left(d.Key, d.Algorithm); sum+left != limit.Max {
			e.fatalf("%d units were recorded under %v and %d are left, want %d in all",
				sum, limit, left, limit.Max)
		}
	}
	for i := range ds {
		pair := []driver.Demand{ds[i], ds[(i+1)%len(ds)]}
		full := e.left(pair[0].Key, pair[0].Algorithm) == 0 ||
			e.left(pair[1].Key, pair[1].Algorithm) == 0
		if allowed(e.all(pair...)) == full {
			e.fatalf("after the concurrent calls a TakeAll returned Allowed %t", !full)
		}
	}
}

// storm is what one goroutine of checkStorm does.
type storm struct {
	*env
	rand *rand.Rand
	id   uint64 // of the last holds
}

// charge makes takes as one, those under limits with holds by holds of one ID that it settles. It
// returns the units that were recorded.
func (s *storm) charge(ds []driver.Demand) (units []int64, err error) {
	s.id++
	asked, out := slices.Clone(ds), make([]driver.Result, len(ds))
	var held []int
	for i := range asked {
		if _, ok := asked[i].Algorithm.(driver.Holder); ok {
			asked[i].Op, asked[i].ID = driver.OpHold, s.id
			held = append(held, i)
		}
	}
	units = make([]int64, len(ds))
	if err := s.store.TakeAll(s.ctx, asked, out); err != nil || !allowed(out) {
		return units, err
	}
	n := s.rand.Int64N(2)
	var settled []driver.Demand
	for i, d := range asked {
		if units[i] = d.N; d.Op == driver.OpHold {
			settled = append(settled, settle(d.Key, d.Algorithm, s.id, n))
		}
	}
	if len(held) == 0 {
		return units, nil
	}
	out = out[:len(held)]
	if err = s.store.TakeAll(s.ctx, settled, out); err == nil && !allowed(out) {
		err = fmt.Errorf("a TakeAll of settlements returned %+v", out)
	}
	for i, j := range held {
		units[j] = out[i].Units
	}
	return units, err
}

// wantTwins peeks at the twins.
func (s *storm) wantTwins(twins []driver.Demand) error {
	asked, out := slices.Clone(twins), make([]driver.Result, len(twins))
	for i := range asked {
		asked[i].Op = driver.OpPeek
	}
	err := s.store.TakeAll(s.ctx, asked, out)
	if err == nil && out[0].Remaining != out[1].Remaining {
		err = fmt.Errorf("%d and %d units are left under two limits under which all is held and "+
			"settled together", out[0].Remaining, out[1].Remaining)
	}
	return err
}
