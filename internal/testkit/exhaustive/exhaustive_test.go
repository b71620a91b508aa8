//go:build !race

package exhaustive

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
)

const (
	tick    = int64(1) << 14 // µs
	window  = 3 * tick
	timeout = 2 * tick
)

func limit(name string, most int64) driver.Limit {
	return driver.Limit{Name: name, Max: most, Window: micros(window)}
}

// do returns calls without an ID.
func do(op driver.Op, n int64) call { return call{op: op, n: n, client: nobody} }

func part(c call, least int64) call {
	c.least = least
	return c
}

// byEach returns the calls of each client.
func byEach(calls ...call) (all []call) {
	for client := range clients {
		for _, c := range calls {
			c.client = client
			all = append(all, c)
		}
	}
	return all
}

// alone makes each call at a place.
func alone(place int, calls ...call) (all [][]on) {
	for _, c := range calls {
		all = append(all, []on{{place, c}})
	}
	return all
}

func logPlace(key string, most int64) place {
	return place{key, algorithm.SlidingLog(limit("log", most)), &rule{most: most, window: window}}
}

func budgetPlace(most int64) place {
	a := algorithm.Budget(algorithm.SlidingLog(limit("budget", most)))
	return place{"a", a.WithTimeout(micros(timeout)),
		&rule{most: most, window: window, timeout: timeout}}
}

func flightPlace(most int64) place {
	return place{"a", algorithm.InFlight("calls", most).WithTimeout(micros(timeout)),
		&rule{most: most, timeout: timeout}}
}

func placeOf(a driver.Algorithm) place { return place{"k", a, nil} }

var (
	takes = []call{do(driver.OpTake, 1), do(driver.OpTake, 2), part(do(driver.OpTake, 3), 1),
		do(driver.OpForce, 1), do(driver.OpForce, 3), do(driver.OpReset, 1), do(driver.OpPeek, 1)}
	forceAt = call{op: driver.OpForce, n: 1, at: tick, client: nobody}
	holds   = byEach(holding(1), holding(2), part(holding(3), 1),
		call{op: driver.OpHold, n: 1, long: true}, holding(0), settling(0), settling(1),
		settling(2))
	forward = []int64{0, tick, window}
	later   = []int64{0, tick, window, day}
	anyway  = []int64{0, tick, window, -tick, -4 * tick}
)

func holding(n int64) call { return call{op: driver.OpHold, n: n} }

func settling(n int64) call { return call{op: driver.OpSettle, n: n} }

// join makes each list of calls one call, at these places.
func join(places []int, lists ...[]call) (all [][]on) {
	for i := range lists[0] {
		var joined []on
		for j, place := range places {
			joined = append(joined, on{place, lists[j][i]})
		}
		all = append(all, joined)
	}
	return all
}

// scopes are what is explored under limits of most units. A few calls are tried in long sequences,
// and all calls in short ones.
func scopes(most int64) map[string]*scope {
	few := byEach(holding(1), holding(0), settling(1))
	flight := byEach(holding(1), holding(2), holding(0), settling(0))
	one := []call{do(driver.OpTake, 1)}
	logs := alone(0, slices.Concat(takes, []call{forceAt})...)
	several := []place{logPlace("a", most), budgetPlace(2), logPlace("b", 1), flightPlace(1)}
	both := slices.Concat(join([]int{0, 1}, one, one), join([]int{0, 2}, one, one),
		join([]int{1, 3}, few, few))
	all := map[string]*scope{
		"log": {places: []place{logPlace("k", most)}, calls: logs, moves: forward, depth: 6},
		"log, clock set back": {places: []place{logPlace("k", most)}, calls: logs, moves: anyway,
			depth: 5},
		"budget": {places: []place{budgetPlace(most)}, calls: alone(0, slices.Concat(few, one)...),
			moves: []int64{0, timeout}, depth: 6},
		"budget, every call": {places: []place{budgetPlace(most)},
			calls: alone(0, slices.Concat(holds, takes)...), moves: later, depth: 3},
		"budget, clock set back": {places: []place{budgetPlace(most)},
			calls: alone(0, slices.Concat(few, one)...), moves: anyway, depth: 4},
		"in flight": {places: []place{flightPlace(most)}, calls: alone(0, flight...),
			moves: []int64{0, timeout}, depth: 6},
		"in flight, every call": {places: []place{flightPlace(most)},
			calls: alone(0, slices.Concat(holds, takes[5:])...),
			moves: later, depth: 3},
		"in flight, clock set back": {places: []place{flightPlace(most)},
			calls: alone(0, few...), moves: anyway, depth: 4},
		"together": {places: several, calls: both, moves: []int64{0, timeout}, depth: 6},
		"together, every call": {places: several,
			calls: slices.Concat(both, join([]int{0, 1}, takes, takes),
				join([]int{2, 0, 1}, takes[2:3], takes[2:3], takes[2:3]),
				join([]int{0, 1, 3}, one, byEach(holding(2))[:1], byEach(holding(1))[:1])),
			moves: forward, depth: 4},
	}
	for name, a := range map[string]driver.Algorithm{
		"bucket":  algorithm.GCRA(limit("bucket", most)),
		"fixed":   algorithm.FixedWindow(limit("fixed", most)),
		"counter": algorithm.SlidingWindowCounter(limit("counter", most)),
		"coarse":  algorithm.SlidingLog(limit("coarse", most)).WithResolution(micros(tick)),
	} {
		all[name] = &scope{places: []place{placeOf(a)}, calls: alone(0, takes...), moves: anyway,
			depth: 5}
		all[name+" with holds"] = &scope{
			places: []place{placeOf(algorithm.Budget(a).WithTimeout(micros(timeout)))},
			calls:  alone(0, slices.Concat(few, takes)...), moves: forward, depth: 4}
	}
	return all
}

// TestEverySequence finds no sequence of calls that the model or the contract contradicts.
func TestEverySequence(t *testing.T) {
	for most := int64(1); most <= 3; most++ {
		for name, s := range scopes(most) {
			t.Run(fmt.Sprintf("%s of %d", name, most), func(t *testing.T) {
				t.Parallel()
				s.depth += depth.Of(0, 1)
				s.store = newStore()
				begin := time.Now()
				problem, states, calls := s.explore()
				t.Logf("%d calls deep: %d states, %d calls, %v", s.depth, states, calls,
					time.Since(begin).Round(time.Millisecond))
				if problem != "" {
					t.Error(problem)
				}
			})
		}
	}
}
