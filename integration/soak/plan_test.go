package soak

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/testkit/timed"
)

// A soakRound is what all processes of a soak do for some seconds, on the round's own keys. Seed
// and Number determine everything.
type soakRound struct {
	Seed   uint64
	Number int
	Clock  bool // the server's clock steps, without other faults and with long timeouts
}

// A soakGroup is keys and limits whose demands are checked as one history, because a TakeAll can
// contain several of them.
type soakGroup struct {
	keys   []string
	limits []ratelimit.Algorithm // several of one name are versions of one limit
	frees  bool                  // units are held and settled, and states reset
}

const (
	soakGroups = 6
	soakPeers  = 6 // processes whose holds others settle
)

// longWindow is longer than a round, even if the clock steps back by 30 seconds in it.
const longWindow = time.Minute

func (r soakRound) random(part int) *rand.Rand {
	return rand.New(rand.NewPCG(r.Seed, uint64(r.Number)<<16|uint64(part)))
}

func (r soakRound) groups() []soakGroup {
	random := r.random(0)
	groups := make([]soakGroup, soakGroups)
	for i := range groups {
		g := soakGroup{frees: random.IntN(3) > 0}
		for k := range 1 + random.IntN(2) {
			g.keys = append(g.keys, fmt.Sprintf("%x/%d/%d/%d", r.Seed, r.Number, i, k))
		}
		add := func(name string, max int64, window time.Duration) {
			limit := ratelimit.Limit{Name: name, Max: max, Window: window}
			g.limits = append(g.limits, algorithmOf(kindLog, limit, 0))
		}
		most := 3 + random.Int64N(60)
		add("long", most, longWindow)
		if random.IntN(2) == 0 {
			// a Max that differs between deployments
			add("long", most+1+random.Int64N(5), longWindow)
		}
		switch random.IntN(3) {
		case 0:
			add("other", 3+random.Int64N(20), longWindow)
		case 1:
			if !r.Clock {
				window := 200*time.Millisecond + time.Duration(random.IntN(600))*time.Millisecond
				add("other", 3+random.Int64N(8), window)
				if random.IntN(3) == 0 {
					add("other", 3+random.Int64N(8), window*3/2)
				}
			}
		}
		if g.frees {
			limit := ratelimit.Limit{Name: "held", Max: 3 + random.Int64N(20), Window: longWindow}
			timeout := longWindow
			if random.IntN(2) == 0 && !r.Clock {
				timeout = time.Duration(200+random.IntN(600)) * time.Millisecond
			}
			g.limits = append(g.limits, algorithmOf(kindBudget, limit, timeout))
			switch random.IntN(4) {
			case 0, 1:
				limit.Name, limit.Max = "calls", 2+random.Int64N(5)
				g.limits = append(g.limits, algorithmOf(kindFlight, limit, timeout))
			case 2:
				limit.Name = "money"
				g.limits = append(g.limits, algorithmOf(kindMoney, limit, timeout))
			}
		}
		groups[i] = g
	}
	return groups
}

// A soakKind is the kind of a limit.
type soakKind string

const (
	kindLog    soakKind = ""
	kindBudget soakKind = "budget"
	kindMoney  soakKind = "money" // a budget of a fixed window
	kindFlight soakKind = "flight"
)

// algorithmOf returns the algorithm of a limit. Its results tell the time.
func algorithmOf(
	kind soakKind, limit ratelimit.Limit, timeout time.Duration,
) driver.Algorithm {
	switch kind {
	case kindBudget:
		return timed.Of(algorithm.Budget(algorithm.SlidingLog(limit)).WithTimeout(timeout))
	case kindMoney:
		return timed.Of(algorithm.Budget(algorithm.FixedWindow(limit)).WithTimeout(timeout))
	case kindFlight:
		return timed.Of(algorithm.InFlight(limit.Name, limit.Max).WithTimeout(timeout))
	}
	return timed.Of(algorithm.SlidingLog(limit))
}

// kindOf returns the kind of a limit, and the time-out of its holds.
func kindOf(a driver.Algorithm) (kind soakKind, timeout time.Duration) {
	switch h, ok := a.(driver.Holder); {
	case !ok:
		return kindLog, 0
	case h.InFlight():
		return kindFlight, h.HoldTimeout()
	case a.Limit().Name == "money":
		return kindMoney, h.HoldTimeout()
	default:
		return kindBudget, h.HoldTimeout()
	}
}

// A soakWorker draws random demands. It keeps its holds to settle them, sometimes twice, and
// settles those of others, whose IDs it guesses.
type soakWorker struct {
	number int
	random *rand.Rand
	round  soakRound
	groups []soakGroup
	holds  map[soakState][]driver.Demand
	made   map[soakState]int // the number of holds
}

// soakState identifies a state.
type soakState struct{ key, limit string }

func stateOf(d driver.Demand) soakState {
	return soakState{d.Key, d.Algorithm.Limit().Name}
}

func newSoakWorker(r soakRound, number int) *soakWorker {
	return &soakWorker{number, r.random(1 + number), r, r.groups(),
		make(map[soakState][]driver.Demand), make(map[soakState]int)}
}

// id returns the ID of the hold that worker number makes as its nth of a state.
func (r soakRound) id(s soakState, number, nth int) uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, r.Seed, r.Number, s, number, nth)
	return h.Sum64() | 1
}

// group returns the index of a group, mostly the hot one.
func (w *soakWorker) group() int {
	switch w.random.IntN(10) {
	case 0, 1:
		return 0
	case 2:
		return 1
	}
	return w.random.IntN(len(w.groups))
}

// demands returns one demand, or several for a TakeAll.
func (w *soakWorker) demands() (group int, ds []driver.Demand) {
	group = w.group()
	g := &w.groups[group]
	d := w.demand(g)
	if w.random.IntN(12) > 0 {
		return group, []driver.Demand{w.operate(g, d)}
	}
	ds = []driver.Demand{d}
	for range 3 {
		if d := w.demand(g); !hasState(ds, stateOf(d)) {
			ds = append(ds, d)
		}
	}
	return group, ds
}

func hasState(ds []driver.Demand, s soakState) bool {
	for _, d := range ds {
		if stateOf(d) == s {
			return true
		}
	}
	return false
}

// demand returns a take or a hold.
func (w *soakWorker) demand(g *soakGroup) driver.Demand {
	d := driver.Demand{
		Key:       g.keys[w.random.IntN(len(g.keys))],
		Algorithm: g.limits[w.random.IntN(len(g.limits))],
		N:         1 + w.random.Int64N(3)*w.random.Int64N(2),
	}
	d.N = min(d.N, d.Algorithm.Limit().Max)
	kind, _ := kindOf(d.Algorithm)
	if kind == kindFlight || kind != kindLog && w.random.IntN(4) > 0 {
		w.made[stateOf(d)]++
		d.Op, d.ID = driver.OpHold, w.round.id(stateOf(d), w.number, w.made[stateOf(d)])
	}
	return d
}

// operate turns some takes and holds into other operations.
func (w *soakWorker) operate(g *soakGroup, d driver.Demand) driver.Demand {
	draw := w.random.IntN(100)
	known := w.holds[stateOf(d)]
	switch {
	case draw < 8:
		d.Op, d.ID = driver.OpPeek, 0
	case draw < 10 && d.Op != driver.OpHold:
		d.Op, d.ID = driver.OpForce, 0
	case draw < 12 && g.frees:
		d.Op, d.ID = driver.OpReset, 0
	case draw < 16 && d.Op == driver.OpHold:
		of := w.random.IntN(soakPeers * soakWorkers)
		nth := max(1, w.made[stateOf(d)]-w.random.IntN(4))
		d.Op, d.ID, d.N = driver.OpSettle, w.round.id(stateOf(d), of, nth), w.random.Int64N(4)
	case draw < 60 && len(known) > 0:
		of := known[w.random.IntN(len(known))]
		d.Op, d.ID, d.N = driver.OpSettle, of.ID, w.random.Int64N(of.N+2)
		if draw < 26 {
			d.Op, d.N = driver.OpHold, 0 // renews
		}
	}
	return d
}

// learn keeps the holds of admissions.
func (w *soakWorker) learn(ds []driver.Demand, results []ratelimit.Result) {
	const most = 4
	for _, d := range ds {
		if d.Op == driver.OpHold && d.N > 0 && admitted(results) {
			known := append(w.holds[stateOf(d)], d)
			w.holds[stateOf(d)] = known[max(0, len(known)-most):]
		}
	}
}

// admitted reports whether all demands of a call were admitted.
func admitted(results []ratelimit.Result) bool {
	for _, r := range results {
		if !r.Allowed {
			return false
		}
	}
	return len(results) > 0
}

// pause returns how long a caller waits after a call.
func (w *soakWorker) pause(failed bool) time.Duration {
	if failed {
		return 100*time.Millisecond + time.Duration(w.random.IntN(400))*time.Millisecond
	}
	return time.Duration(w.random.ExpFloat64() * float64(5*time.Millisecond))
}
