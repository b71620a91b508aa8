package conformance

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// differential is a random run in which a store must return what the model returns. The zero value
// makes single demands on one store.
type differential struct {
	several bool // TakeAll too, of limits of one key, and holds
	keys    bool // TakeAll of several keys too

	// how many runs; 0 means seedsAtCI
	seeds int
	// what the store is given instead of the algorithm
	wrap func(driver.Algorithm) driver.Algorithm
	// which store is called, by the number of the operation
	store func(*env, int) driver.Store
	// what happens before an operation, by its number
	every func(*env, int)
}

// seedsAtCI and opsAtCI are the size of a differential case at the usual depth.
const seedsAtCI, opsAtCI = 3, 450

func (c differential) check(e *env) {
	seeds := cmp.Or(c.seeds, seedsAtCI)
	if c.several {
		seeds++ // half of them have holds
	}
	for i := range e.rounds(seeds) {
		r, ops := newRun(e, c, e.seed+uint64(i)), opsAtCI
		if c.several && r.seed%2 == 0 { // so that the seed repeats the run
			r.addHolds()
			if !e.full {
				ops *= 2
			}
		}
		r.play(ops)
	}
}

// run is one random run: keys, limits that change, a clock that jumps, and the operations so far.
type run struct {
	differential
	e     *env
	seed  uint64
	rand  *rand.Rand
	model *model

	keyNames []string
	limits   []driver.Algorithm // one a name; their parameters change
	held     []heldLimit
	ids      []uint64 // of holds
	used     map[identity]driver.Algorithm
	insides  map[identity]*inside
	admitted []int64 // when the last admissions leave their windows
	ends     []int64 // when the last holds time out, and the last states run out
	retry    int64   // when the RetryAfter of the last refusal ends
	asked    int     // operations so far, where a case counts them
	trace    []string
}

var limitNames = []string{"", "burst", "daily"}

func newRun(e *env, c differential, seed uint64) *run {
	now := begin(seed)
	e.clock.set(now)
	r := &run{differential: c, e: e, seed: seed, rand: rand.New(rand.NewPCG(seed, 1)),
		model: newModel(now), retry: now, used: make(map[identity]driver.Algorithm)}
	for range 4 {
		r.keyNames = append(r.keyNames, e.key())
	}
	for _, name := range limitNames {
		r.limits = append(r.limits, r.algorithm(name))
	}
	return r
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// algorithm returns one of the suite's algorithms with random parameters.
func (r *run) algorithm(name string) driver.Algorithm {
	limit := driver.Limit{
		Name: name,
		Max:  pick(r.rand, 1, 2, 3, 5, 10, 40, driver.MaxUnits),
		Window: pick(r.rand, 2*time.Minute, 2*time.Minute+7*time.Microsecond, 5*time.Minute,
			time.Hour, driver.MaxWindow),
	}
	if name == "" { // its name is the window, so its history is that of one window
		limit.Window = window
	}
	return pick(r.rand, r.e.algorithms...)(limit)
}

func (r *run) play(ops int) {
	for i := range ops {
		if r.e.late() {
			break
		}
		if r.every != nil {
			r.every(r.e, i)
		}
		r.move()
		if r.rand.IntN(15) == 0 {
			j := r.rand.IntN(len(r.limits) + len(r.held))
			if j < len(r.limits) {
				r.limits[j] = r.algorithm(limitNames[j])
			} else {
				r.changeHeld(j - len(r.limits))
			}
		}
		r.ask(i, r.demands())
	}
	r.clean()
}

// clean resets the states that the run has left, which a server might otherwise keep for a year.
func (r *run) clean() {
	for id := range r.model.states {
		r.e.admit(reset(id.key, r.used[id]))
	}
}

// move moves the clock: to an instant around which decisions change, by a random time, or not at
// all.
func (r *run) move() {
	now := r.model.now
	a := pick(r.rand, r.algorithms()...)
	span := a.Limit().Window.Microseconds()
	if h, ok := a.(driver.Holder); ok {
		span = pick(r.rand, span, h.HoldTimeout().Microseconds())
	}
	how := r.rand.IntN(24)
	if len(r.held) > 0 && r.rand.IntN(3) > 0 {
		how = 24
	}
	switch how {
	case 0, 1, 2, 3:
		now++
	case 4, 5, 6:
		now += r.rand.Int64N(span/20 + 1)
	case 7, 8:
		now = r.retry - 1
	case 9, 10:
		now = r.retry
	case 11:
		now += span
	case 12:
		now += span - 1
	case 13:
		now += r.rand.Int64N(3 * span)
	case 14:
		now -= r.rand.Int64N(span / 20)
	case 15:
		now -= r.rand.Int64N(span)
	case 16:
		if r.rand.IntN(4) == 0 {
			now -= span + r.rand.Int64N(span)
		}
	case 17:
		if len(r.admitted) > 0 { // the instant at which an admission leaves the window
			now = pick(r.rand, r.admitted...) - r.rand.Int64N(2)
		}
	case 18:
		if len(r.ends) > 0 {
			now = pick(r.rand, r.ends...) - r.rand.Int64N(2)
		}
	case 24: // so that holds last for some calls
		now += r.rand.Int64N(2) * r.rand.Int64N(1e6)
	}
	if now < 1 || now > farFuture { // start over, on other keys
		now = start
	}
	r.setClock(now)
}

func (r *run) setClock(now int64) {
	r.e.clock.set(now)
	r.model.set(now)
	r.passed(now)
}

// algorithms returns those of all limits.
func (r *run) algorithms() []driver.Algorithm {
	all := slices.Clone(r.limits)
	for _, l := range r.held {
		all = append(all, l.holder)
	}
	return all
}

// farFuture is the end of the year 2111, up to which clocks must work.
const farFuture = int64(4_481_135_999_999_999)

func (r *run) demands() []driver.Demand {
	algorithms, size := r.algorithms(), 1
	if r.several && r.rand.IntN(2) == 0 {
		size = 1 + r.rand.IntN(3)
	} else if len(r.held) > 0 {
		size = 2
	}
	keys, limits := r.rand.Perm(len(r.keyNames)), r.rand.Perm(len(algorithms))
	spread := r.keys && r.rand.IntN(2) == 0
	alike := r.rand.IntN(2) == 0 // the holds are those of one reservation
	id, op := uint64(0), 0
	ds := make([]driver.Demand, size)
	for i := range ds {
		key, a := r.keyNames[keys[0]], algorithms[limits[i]]
		if spread {
			key, a = r.keyNames[keys[i]], pick(r.rand, algorithms...)
		}
		h, ok := a.(driver.Holder)
		if !ok || len(r.held) == 0 {
			ds[i] = r.demand(key, a)
			continue
		}
		if id == 0 || !alike {
			id, op = pick(r.rand, r.ids...), r.rand.IntN(heldOps)
		}
		ds[i] = r.heldDemand(key, h, id, op)
	}
	if r.rand.IntN(5) == 0 {
		r.grant(ds)
	}
	return ds
}

// grant makes a part enough for the takes and holds among ds.
func (r *run) grant(ds []driver.Demand) {
	least, more := driver.MaxUnits, pick[int64](r.rand, 0, 1, 5, 40)
	for _, d := range ds {
		least = min(least, 1+r.rand.Int64N(d.Algorithm.Limit().Max))
	}
	for i := range ds {
		if d := &ds[i]; d.Op == driver.OpTake || d.Op == driver.OpHold && d.N > 0 {
			d.N, d.Least = min(least+more, driver.MaxUnits), least
		}
	}
}

// demand returns a random demand that CheckTake accepts.
func (r *run) demand(key string, a driver.Algorithm) driver.Demand {
	most := a.Limit().Max
	d := take(key, a, 1)
	if r.rand.IntN(3) == 0 {
		d.N = 1 + r.rand.Int64N(most)
	}
	switch r.rand.IntN(20) {
	case 0, 1, 2:
		d.Op = driver.OpPeek
	case 3:
		d.At = pick(r.rand, 0, r.model.now-r.rand.Int64N(a.Limit().Window.Microseconds()))
		fallthrough
	case 4:
		d.Op, d.N = driver.OpForce, pick(r.rand, 1, 3, most, most+1, 2*most)
		d.N = min(d.N, driver.MaxUnits)
	case 5:
		if r.rand.IntN(2) == 0 {
			d.Op, d.N = driver.OpReset, pick(r.rand, -1, 0, 1, driver.MaxUnits+1)
		}
	}
	return d
}

// ask makes ds on the store and on the model, and compares.
func (r *run) ask(i int, ds []driver.Demand) {
	for _, d := range ds {
		if r.doubtful(d) {
			r.leave(d.Key)
			return
		}
		r.used[identityOf(d)] = d.Algorithm
	}
	want, writes := r.model.decide(ds)
	if brief(writes) {
		return
	}
	got, err := r.tell(i, ds)
	r.note("at %d: %s\n\tgot  %+v, %v\n\twant %+v", r.model.now, describe(ds), got, err, want)
	if err != nil || !sameAll(got, want) {
		r.e.fatalf("operation %d of a random run, the last of these, did not return what the step "+
			"returned (to repeat the run set %s=%d)\n%s",
			i, seedVar, r.seed, strings.Join(r.trace, "\n"))
	}
	r.model.commit(writes)
	for _, w := range writes {
		r.ends = latest(r.ends, r.model.now+w.keep.Microseconds())
	}
	r.remember(ds, got)
	r.follow(ds, want)
}

// tell makes ds on the store: a single demand mostly by Take, several by TakeAll.
func (r *run) tell(i int, ds []driver.Demand) (got []driver.Result, err error) {
	store := r.e.store
	if r.store != nil {
		store = r.store(r.e, i)
	}
	asked := append([]driver.Demand(nil), ds...)
	if r.wrap != nil {
		for j := range asked {
			asked[j].Algorithm = r.wrap(asked[j].Algorithm)
		}
	}
	got = make([]driver.Result, len(ds))
	if len(ds) == 1 && (!r.several || r.rand.IntN(4) > 0) {
		got[0], err = store.Take(r.e.ctx, asked[0])
	} else {
		err = store.TakeAll(r.e.ctx, asked, got)
	}
	return got, err
}

// remember keeps what later operations refer to.
func (r *run) remember(ds []driver.Demand, results []driver.Result) {
	all := allowed(results)
	for i, d := range ds {
		if results[i].RetryAfter > 0 {
			r.retry = r.model.now + results[i].RetryAfter.Microseconds()
		}
		if all && (d.Op == driver.OpTake || d.Op == driver.OpForce) {
			r.admitted = latest(r.admitted,
				r.model.now+d.Algorithm.Limit().Window.Microseconds())
		}
		if all && d.Op == driver.OpHold {
			r.ends = latest(r.ends, r.model.now+results[i].ResetAfter.Microseconds())
		}
	}
}

// latest adds an instant to the last ones.
func latest(instants []int64, at int64) []int64 {
	instants = append(instants, at)
	return instants[max(0, len(instants)-64):]
}

func (r *run) note(format string, args ...any) {
	if len(r.trace) == 8 {
		r.trace = r.trace[1:]
	}
	r.trace = append(r.trace, fmt.Sprintf(format, args...))
}

// describe leaves out the prefix of keys.
func describe(ds []driver.Demand) string {
	var b strings.Builder
	for i, d := range ds {
		if i > 0 {
			b.WriteString(" and ")
		}
		fmt.Fprintf(&b, "%v %d of %v (%+v) on key %s", d.Op, d.N, d.Algorithm.Limit(), d.Algorithm,
			d.Key[strings.LastIndexByte(d.Key, '-')+1:])
		if d.At != 0 {
			fmt.Fprintf(&b, " at %d", d.At)
		}
		if d.Least != 0 {
			fmt.Fprintf(&b, ", at least %d", d.Least)
		}
		if d.ID != 0 {
			fmt.Fprintf(&b, " by ID %d for %v", d.ID, d.HoldTimeout)
		}
	}
	return b.String()
}
