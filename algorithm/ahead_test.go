package algorithm_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
	"github.com/truewindow/ratelimit/internal/testkit/uses"
)

// aheadWindow is the Window in worlds, in µs.
const aheadWindow = 10_000

// An aheadKind is algorithms of one history, of a limit or of a lower one, and what their limit
// says of uses.
type aheadKind struct {
	algorithms func(driver.Limit) []driver.Ahead
	backBy     int64 // a step back of the clock is shorter, in µs
	backMost   int64 // all steps back together; 0: any number
	settledNow bool  // settled units count from then on, and not from when they were held
	excess     uses.Excess
}

// An aheadHold is units that are held and not settled yet. They count from when they were held, or,
// in a bucket, from when they are settled.
type aheadHold struct {
	id uint64
	at int64
	n  int64
}

func aheadKinds() map[string]aheadKind {
	const (
		back = 3 * aheadWindow / 2
		// A bucket forgets what comes back in a lead after a step back of a Window less the lead.
		backOfBucket = 3 * aheadWindow / 4
	)
	logs := func(l driver.Limit) []driver.Ahead {
		return []driver.Ahead{algorithm.SlidingLog(l),
			algorithm.SlidingLog(l).WithResolution(l.Window / 20)}
	}
	bucket := func(l driver.Limit) []driver.Ahead { return []driver.Ahead{algorithm.GCRA(l)} }
	budgets := func(
		of func(driver.Limit) []driver.Ahead,
	) func(driver.Limit) []driver.Ahead {
		return func(l driver.Limit) (all []driver.Ahead) {
			for _, a := range of(l) {
				all = append(all, algorithm.Budget(a).WithTimeout(5*l.Window))
			}
			return all
		}
	}
	return map[string]aheadKind{
		"log":           {algorithms: logs, backBy: back, excess: uses.OverWindow},
		"budget of log": {algorithms: budgets(logs), backBy: back, excess: uses.OverWindow},
		"bucket": {algorithms: bucket, backBy: backOfBucket, backMost: backOfBucket,
			excess: uses.OverBucket},
		"budget of bucket": {algorithms: budgets(bucket), backBy: backOfBucket,
			backMost: backOfBucket, excess: uses.OverBucket, settledNow: true},
		"fixed": {excess: uses.OverFixed, algorithms: func(l driver.Limit) []driver.Ahead {
			return []driver.Ahead{algorithm.FixedWindow(l)}
		}},
	}
}

// An aheadWorld is processes that take units of one key ahead of their use, and processes that do
// not. They use them when it may do most harm.
type aheadWorld struct {
	aheadKind
	t        testing.TB
	r        *rand.Rand
	most     int64 // the largest Max
	state    []byte
	real     int64 // time
	back     int64 // by which the clock of the store is behind
	lead     time.Duration
	uses     []uses.Use
	instants []int64 // of takes and uses
	holds    []aheadHold
	lateBy   float64 // part of a lead by which units are used too late: a fault
	plain    bool    // units are taken without a lead: a fault
	beyond   bool    // ResetAfter is not read: a fault
}

func newAheadWorld(t testing.TB, k aheadKind, seed uint64) *aheadWorld {
	r := rand.New(rand.NewPCG(seed, 1))
	return &aheadWorld{aheadKind: k, t: t, r: r, most: []int64{1, 5, 20, 100}[r.IntN(4)],
		real: 1000 * aheadWindow, lead: time.Duration(1+r.Int64N(aheadWindow/4)) * time.Microsecond}
}

// play returns by how many units the limit was exceeded.
func (w *aheadWorld) play(steps int) int64 {
	for range steps {
		w.pass()
		limit := driver.Limit{Name: "ahead", Max: w.most, Window: aheadWindow * time.Microsecond}
		if w.r.IntN(8) == 0 { // a lower limit, in some processes
			limit.Max = 1 + w.r.Int64N(limit.Max)
		}
		all := w.algorithms(limit)
		a := all[w.r.IntN(len(all))]
		if _, ok := a.(driver.Holder); ok && w.r.IntN(4) == 0 {
			w.hold(a)
		} else {
			w.take(a)
		}
	}
	uses.Sort(w.uses)
	return w.excess(w.uses, w.most, aheadWindow)
}

// pass lets time pass: by little, or until a Window after an instant that matters.
func (w *aheadWorld) pass() {
	switch {
	case w.backBy > 0 && w.r.IntN(20) == 0:
		step := w.r.Int64N(w.backBy)
		if w.backMost == 0 || w.back+step <= w.backMost {
			w.back += step
		}
	case w.r.IntN(3) == 0 && len(w.instants) > 0:
		at := w.instants[w.r.IntN(len(w.instants))] + aheadWindow + w.r.Int64N(3) - 1
		w.real = max(w.real, at)
	default:
		w.real += w.r.Int64N(aheadWindow / 20)
	}
}

// take has one process take some units, and perhaps lose the answer.
func (w *aheadWorld) take(a driver.Ahead) {
	lead := w.lead / time.Duration(1+w.r.IntN(2))
	if w.r.IntN(4) == 0 {
		lead = 0
	}
	of, n := a.Ahead(lead), 1+w.r.Int64N(a.Limit().Max)
	if w.plain {
		of = a
	}
	d := driver.Demand{Key: "k", Algorithm: of, N: n, Least: 1}
	next, keep, res := d.Step(w.state, w.real-w.back)
	if keep < 0 {
		w.t.Fatal("corrupt")
	}
	if keep > 0 {
		w.state = next
	}
	w.instants = append(w.instants, w.real)
	if !res.Allowed || w.r.IntN(10) == 0 {
		return
	}
	until := lead.Microseconds()
	if !w.beyond {
		until = min(until, res.ResetAfter.Microseconds())
	}
	until += int64(float64(until) * w.lateBy)
	for left := res.Units; left > 0; {
		at, units := int64(0), left
		if until > 0 {
			switch w.r.IntN(3) {
			case 0:
				units, at = 1+w.r.Int64N(left), w.r.Int64N(until)
			case 1:
				at = until - 1
			}
		}
		left -= units
		w.uses = append(w.uses, uses.Use{At: w.real + at, Units: units})
		w.instants = append(w.instants, w.real+at)
	}
}

// hold has a process hold some units, or settle what another holds.
func (w *aheadWorld) hold(a driver.Ahead) {
	d := driver.Demand{Key: "k", Algorithm: a, Op: driver.OpHold, N: 1 + w.r.Int64N(a.Limit().Max),
		ID: w.r.Uint64() | 1}
	w.holds = slices.DeleteFunc(w.holds, func(h aheadHold) bool { // they may time out
		return w.real-h.at > 4*aheadWindow
	})
	var held aheadHold
	settles := len(w.holds) > 0 && w.r.IntN(2) == 0
	if settles {
		i := w.r.IntN(len(w.holds))
		held = w.holds[i]
		w.holds = slices.Delete(w.holds, i, i+1)
		d.Op, d.ID, d.N = driver.OpSettle, held.id, 1+w.r.Int64N(held.n)
	}
	next, keep, res := d.Step(w.state, w.real-w.back)
	if keep > 0 {
		w.state = next
	}
	switch {
	case keep < 0:
		w.t.Fatal("corrupt")
	case !settles && res.Allowed:
		w.holds = append(w.holds, aheadHold{d.ID, w.real, d.N})
	case settles && res.Units > 0:
		at := held.at
		if w.settledNow {
			at = w.real
		}
		w.uses = append(w.uses, uses.Use{At: at, Units: res.Units})
	}
	w.instants = append(w.instants, w.real)
}

// TestAhead: units that are taken ahead and used within their lead exceed no limit, whoever takes
// them: processes with other leads, Resolutions and limits, and such that take none ahead.
func TestAhead(t *testing.T) {
	for name, k := range aheadKinds() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range depth.Of[uint64](3_000, 200_000) {
				if over := newAheadWorld(t, k, seed).play(60); over > 0 {
					t.Fatalf("world %d: %d units above the limit", seed, over)
				}
			}
		})
	}
}

// TestAheadFindsFaults: the worlds of TestAhead show leases that last too long, and units that are
// taken without a lead.
func TestAheadFindsFaults(t *testing.T) {
	const worlds = 2000
	of := []string{"log", "bucket", "budget of log", "budget of bucket"}
	for fault, f := range map[string]struct {
		kinds []string
		plant func(*aheadWorld)
	}{
		"no lead":           {of, func(w *aheadWorld) { w.plain = true }},
		"5% longer":         {append(of, "fixed"), func(w *aheadWorld) { w.lateBy = .05 }},
		"no end":            {append(of, "fixed"), func(w *aheadWorld) { w.lateBy = 4 }},
		"beyond the window": {[]string{"fixed"}, func(w *aheadWorld) { w.beyond = true }},
	} {
		for _, name := range f.kinds {
			t.Run(fault+"/"+name, func(t *testing.T) {
				t.Parallel()
				found, worst := 0, int64(0)
				for seed := range uint64(worlds) {
					w := newAheadWorld(t, aheadKinds()[name], seed)
					f.plant(w)
					if over := w.play(60); over > 0 {
						found, worst = found+1, max(worst, over)
					}
				}
				t.Logf("found in %d of %d worlds, at most %d units above", found, worlds, worst)
				if found == 0 {
					t.Error("not found")
				}
			})
		}
	}
}

// An aheadGame plays all sequences of takes from a state on.
type aheadGame struct {
	aheadKind
	t         *testing.T
	a         driver.Ahead
	sequences int
}

func (g *aheadGame) play(state []byte, now int64, earlier []uses.Use, left int) {
	const long, short = aheadWindow / 10, aheadWindow / 20
	if left == 0 {
		g.sequences++
		sorted := slices.Clone(earlier)
		uses.Sort(sorted)
		if over := g.excess(sorted, g.a.Limit().Max, aheadWindow); over > 0 {
			g.t.Fatalf("%v: %d units above after the uses %v", g.a, over, earlier)
		}
		return
	}
	for _, move := range []int64{0, short, long, aheadWindow - long, aheadWindow - 1, aheadWindow} {
		for _, take := range []struct {
			lead, n int64
			late    bool
		}{{0, 1, false}, {long, 1, true}, {long, 2, true}, {short, 1, true}, {long, 1, false}} {
			at := now + move
			d := driver.Demand{Key: "k", N: take.n, Least: 1,
				Algorithm: g.a.Ahead(time.Duration(take.lead) * time.Microsecond)}
			next, keep, res := d.Step(slices.Clone(state), at)
			if keep <= 0 {
				next = state
			}
			used := earlier
			if res.Allowed {
				use := uses.Use{At: at, Units: res.Units}
				if take.late {
					use.At += min(take.lead, res.ResetAfter.Microseconds()) - 1
				}
				used = append(earlier[:len(earlier):len(earlier)], use)
			}
			g.play(next, at, used, left-1)
		}
	}
}

// TestAheadEverySequence plays every sequence of a few takes of small limits, with two leads and
// without, that are used at once or as late as they may be.
func TestAheadEverySequence(t *testing.T) {
	for name, k := range aheadKinds() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := aheadGame{aheadKind: k, t: t}
			for most := int64(1); most <= 2; most++ {
				for _, g.a = range k.algorithms(driver.Limit{
					Name: "ahead", Max: most, Window: aheadWindow * time.Microsecond}) {
					g.play(nil, 1000*aheadWindow, nil, depth.Of(3, 4))
				}
			}
			t.Log(g.sequences, "sequences")
		})
	}
}

// TestAheadOf: which leads an algorithm can have, and what it says of them.
func TestAheadOf(t *testing.T) {
	limit := driver.PerMinute("ahead", 60)
	log, bucket := algorithm.SlidingLog(limit), algorithm.GCRA(limit)
	coarse, fixed := log.WithResolution(time.Second), algorithm.FixedWindow(limit)
	for _, tt := range []struct {
		a    driver.Ahead
		d    time.Duration
		want string // "" for nil
	}{
		{log, 100 * time.Millisecond, "ahead=60/1m0s 100ms ahead"},
		{log, 1, "ahead=60/1m0s 1µs ahead"}, // rounded up
		{log, 0, "ahead=60/1m0s"},
		{log, -1, ""},
		{log, time.Minute, ""}, // and the Resolution
		{coarse, time.Second, "ahead=60/1m0s with resolution 1s 1s ahead"},
		{coarse, time.Minute - time.Second + 1, ""},
		{bucket, time.Second, "ahead=60/1m0s 1s ahead"},
		{bucket, time.Minute, ""}, // all units come back in it
		{bucket, -1, ""},
		{fixed, time.Second, "ahead=60/1m0s"},
		{fixed, -1, ""},
		{algorithm.Budget(log), time.Second, "ahead=60/1m0s 1s ahead with holds of 1m0s"},
		{algorithm.Budget(bucket), time.Minute, ""},
		{algorithm.Budget(fixed), time.Second, ""},
		{algorithm.InFlight("calls", 5), time.Second, ""},
	} {
		got := ""
		if a := tt.a.Ahead(tt.d); a != nil {
			if got = fmt.Sprint(a); a.Name() != tt.a.Name() || a.Limit() != tt.a.Limit() {
				t.Errorf("%v is of another history", a)
			}
		}
		if got != tt.want {
			t.Errorf("%v ahead of %v: %q, want %q", tt.d, tt.a, got, tt.want)
		}
	}
	ahead := log.Ahead(time.Second).(driver.Ahead)
	if ahead.Ahead(0) != driver.Algorithm(log) || ahead == driver.Ahead(log) ||
		ahead.Ahead(time.Second) != driver.Algorithm(ahead) {
		t.Error("leads are not compared")
	}
}

// TestStepOfInvalidLogs: a step on parameters that are out of range, which no limiter accepts, does
// not panic.
func TestStepOfInvalidLogs(t *testing.T) {
	log := algorithm.SlidingLog(driver.PerMinute("log", 5))
	for _, a := range []algorithm.Log{{}, log.WithResolution(-1), log.WithResolution(500),
		log.WithResolution(1<<63 - 1)} {
		var state []byte
		for i := range int64(3) {
			d := driver.Demand{Key: "k", Algorithm: a, Op: driver.OpForce, N: 1}
			state, _, _ = d.Step(state, 1e15+i)
			a.Script().Args(nil, d)
		}
	}
	if a := (algorithm.Log{}).Ahead(0); a != nil {
		t.Errorf("the zero Log is ahead as %v", a)
	}
}
