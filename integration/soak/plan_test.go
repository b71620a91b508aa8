package soak

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
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
	frees  bool                  // units are given back, and states reset
}

const soakGroups = 6

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
			g.limits = append(g.limits,
				algorithm.SlidingLog(ratelimit.Limit{Name: name, Max: max, Window: window}))
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
		groups[i] = g
	}
	return groups
}

// A soakWorker draws random demands. It keeps the stamps of its admissions to give them back.
type soakWorker struct {
	random *rand.Rand
	groups []soakGroup
	stamps map[soakState][]int64
}

// soakState identifies a state.
type soakState struct{ key, limit string }

func stateOf(d driver.Demand) soakState {
	return soakState{d.Key, d.Algorithm.Limit().Name}
}

func newSoakWorker(r soakRound, number int) *soakWorker {
	return &soakWorker{r.random(1 + number), r.groups(), make(map[soakState][]int64)}
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

func (w *soakWorker) demand(g *soakGroup) driver.Demand {
	return driver.Demand{
		Key:       g.keys[w.random.IntN(len(g.keys))],
		Algorithm: g.limits[w.random.IntN(len(g.limits))],
		N:         1 + w.random.Int64N(3)*w.random.Int64N(2),
	}
}

// operate turns some takes into other operations.
func (w *soakWorker) operate(g *soakGroup, d driver.Demand) driver.Demand {
	draw := w.random.IntN(100)
	switch {
	case draw < 8:
		d.Op = driver.OpPeek
	case draw < 10:
		d.Op = driver.OpForce
	case draw < 22 && g.frees:
		if known := w.stamps[stateOf(d)]; len(known) > 0 {
			d.Op, d.At = driver.OpGiveBack, known[w.random.IntN(len(known))]
		}
	case draw < 23 && g.frees:
		d.Op = driver.OpReset
	}
	return d
}

// learn keeps the stamps of admissions.
func (w *soakWorker) learn(ds []driver.Demand, results []ratelimit.Result) {
	const most = 6
	for i, d := range ds {
		if d.Op != driver.OpTake && d.Op != driver.OpForce || !admitted(results) {
			continue
		}
		known := append(w.stamps[stateOf(d)], results[i].At)
		w.stamps[stateOf(d)] = known[max(0, len(known)-most):]
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
