package linear

import (
	"bytes"
	"cmp"
	"container/heap"
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/truewindow/ratelimit/conformance"
	"github.com/truewindow/ratelimit/driver"
)

// A search is for an order of the operations of one history.
type search struct {
	clock    Clock
	ops      []operation
	kinds    []operation // of unknown outcome, each that is different from the others
	states   int
	windows  []int64   // µs, of all limits
	named    [][]int64 // by state: the instants that results name
	thorough bool      // also try operations that show in no result
	budget   int       // worlds that may still be made
}

// worldBudget bounds the memory and the time of a search: some hundred bytes, and a microsecond or
// two, for each world.
const worldBudget = 15_000

type identity struct{ key, limit, algorithm string }

func newSearch(history []conformance.Operation, clock Clock) *search {
	s := &search{clock: clock, budget: worldBudget}
	numbers := make(map[identity]int)
	for _, recorded := range history {
		op := operation{Operation: recorded}
		if op.unknown() && !s.effective(recorded) {
			continue
		}
		for _, d := range op.Demands {
			limit := d.Algorithm.Limit()
			id := identity{d.Key, limit.Name, d.Algorithm.Name()}
			n, ok := numbers[id]
			if !ok {
				n = len(numbers)
				numbers[id] = n
			}
			op.states = append(op.states, n)
			for _, w := range append(lengths(d), limit.Window.Microseconds()) {
				if !slices.Contains(s.windows, w) {
					s.windows = append(s.windows, w)
				}
			}
		}
		if op.unknown() {
			op.kind = s.kindOf(op)
			op.Return = op.Call
		}
		s.ops = append(s.ops, op)
	}
	for i := range s.ops {
		s.ops[i].reach = s.reach(s.ops[i].states)
	}
	s.states = len(numbers)
	s.named = make([][]int64, s.states)
	if len(s.kinds) > 0 {
		s.name()
	}
	return s
}

// lengths returns the shortest and the longest time after which a hold that d places times out.
func lengths(d driver.Demand) []int64 {
	h, ok := d.Algorithm.(driver.Holder)
	if !ok || d.Op != driver.OpHold {
		return nil
	}
	length := cmp.Or(d.HoldTimeout, h.HoldTimeout()).Microseconds()
	return []int64{length, length + 1<<max(0, bits.Len64(uint64(length))-4) - 1}
}

// reach returns states and all that are connected with them by operations of unknown outcome on
// several states: those show what such an operation did.
func (s *search) reach(states []int) []int {
	reach := slices.Clone(states)
	for again := true; again; {
		again = false
		for _, k := range s.kinds {
			if !intersect(k.states, reach) {
				continue
			}
			for _, n := range k.states {
				if !slices.Contains(reach, n) {
					reach, again = append(reach, n), true
				}
			}
		}
	}
	return reach
}

func (s *search) thoroughly() *search {
	s.thorough = true
	return s
}

func (s *search) kindOf(op operation) int {
	same := func(k operation) bool { return slices.Equal(k.Demands, op.Demands) }
	if i := slices.IndexFunc(s.kinds, same); i >= 0 {
		return i
	}
	s.kinds = append(s.kinds, op)
	return len(s.kinds) - 1
}

// A world is a possible state of the store after some of the operations. It is never changed in
// place.
type world struct {
	states  []string
	clocks  []int64 // Steady: of the last decision on each state
	clock   int64   // Steady: of the last answered one
	pending []int   // operations of unknown outcome that may still take effect, by kind
	id      string  // the same for equal worlds
}

func (w world) identified() world {
	b := binary.AppendVarint(nil, w.clock)
	for i, state := range w.states {
		b = binary.AppendVarint(b, w.clocks[i])
		b = binary.AppendUvarint(b, uint64(len(state)))
		b = append(b, state...)
	}
	for _, n := range w.pending {
		b = binary.AppendUvarint(b, uint64(n))
	}
	w.id = string(b)
	return w
}

// worlds are all possible ones, in order.
type worlds []world

func (ws worlds) equal(others worlds) bool {
	return slices.EqualFunc(ws, others, func(a, b world) bool { return a.id == b.id })
}

func (s *search) begin() worlds {
	return worlds{world{
		states: make([]string, s.states), clocks: make([]int64, s.states),
		pending: make([]int, len(s.kinds)),
	}.identified()}
}

// step reports whether the i-th operation may come next, and returns the worlds after it.
func (s *search) step(before worlds, i int) (bool, worlds) {
	op := s.ops[i]
	if op.unknown() {
		after := make(worlds, len(before))
		for i, w := range before {
			w.pending = slices.Clone(w.pending)
			w.pending[op.kind]++
			after[i] = w.identified()
		}
		return true, after
	}
	found := make(map[string]world)
	s.answer(before, op, op.Now, found)
	after := make(worlds, 0, len(found))
	for _, w := range found {
		after = append(after, w)
	}
	slices.SortFunc(after, func(a, b world) int { return strings.Compare(a.id, b.id) })
	return len(after) > 0, after
}

// answer finds the worlds in which op returned its results, after none, some or all of the pending
// operations have taken effect on its states. In haste it tries the likeliest first and stops
// early.
func (s *search) answer(before worlds, op operation, now int64, found map[string]world) {
	var open attempts
	try := func(w world, happened int) {
		after, distance := s.explain(w, op, now)
		if distance == 0 {
			found[after.id] = after
		}
		heap.Push(&open, attempt{w, happened, happened + distance})
	}
	for _, w := range before {
		try(w, 0)
	}
	seen := make(map[string]bool)
	for tries := 0; len(open) > 0; tries++ {
		if !s.thorough && (len(found) > 0 || tries == hastyTries) {
			return
		}
		a := heap.Pop(&open).(attempt)
		for kind, n := range a.pending {
			if n > 0 && intersect(s.kinds[kind].states, op.reach) {
				for _, w := range s.happen(a.world, kind, now, seen) {
					try(w, a.happened+1)
				}
			}
		}
	}
}

// hastyTries is the number of worlds in which a hasty search tries pending operations, to explain
// one operation.
const hastyTries = 60

// An attempt explains an operation in a world in which some of the pending operations have
// happened.
type attempt struct {
	world
	happened, distance int
}

// attempts are a heap with the nearest on top.
type attempts []attempt

func (a attempts) Len() int           { return len(a) }
func (a attempts) Less(i, j int) bool { return a[i].distance < a[j].distance }
func (a attempts) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }
func (a *attempts) Push(x any)        { *a = append(*a, x.(attempt)) }
func (a *attempts) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}

func intersect(a, b []int) bool {
	return slices.ContainsFunc(a, func(n int) bool { return slices.Contains(b, n) })
}

// explain returns the world after op in w, and a lower bound of the distance between its results
// and those of op: 0 if they are the same.
func (s *search) explain(w world, op operation, now int64) (after world, distance int) {
	if s.clock == Steady && now < w.clock {
		return w, math.MaxInt32
	}
	after, results := s.decide(w, op, now)
	if !op.Answers(results) {
		return w, 1 + distanceOf(op.Results, results)
	}
	if s.clock == Steady {
		after.clock = now
	}
	return after.identified(), 0
}

// distanceOf is a guess at how much has to happen until a store returns want and not got.
func distanceOf(want, got []driver.Result) (distance int) {
	for i := range want {
		units := want[i].Remaining - got[i].Remaining
		distance += int(min(max(units, -units), 1000))
		if want[i].ResetAfter != got[i].ResetAfter {
			distance++
		}
		if want[i].RetryAfter != got[i].RetryAfter {
			distance++
		}
	}
	return distance
}

// happen returns the worlds, but those seen, in which one operation of a kind has taken effect
// before until.
func (s *search) happen(w world, kind int, until int64, seen map[string]bool) (next worlds) {
	op := s.kinds[kind]
	from := int64(0)
	for _, n := range op.states {
		from = max(from, w.clocks[n])
	}
	for _, now := range s.between(op.states, from, until) {
		if s.budget <= 0 {
			return next
		}
		s.budget--
		after, _ := s.decide(w, op, now)
		if slices.Equal(after.states, w.states) {
			continue // as if it had not happened yet
		}
		after.pending = slices.Clone(w.pending)
		after.pending[kind]--
		if after = after.identified(); !seen[after.id] {
			seen[after.id] = true
			next = append(next, after)
		}
	}
	return next
}

// decide returns the world after op at now, without an id, and the results.
func (s *search) decide(
	w world, op operation, now int64,
) (after world, results []driver.Result) {
	if len(op.Demands) > 1 {
		after, results = s.run(w, op, now, driver.Demand.Peek)
		if slices.ContainsFunc(results, func(r driver.Result) bool { return !r.Allowed }) {
			return after, results
		}
		op.Demands = driver.Grant(op.Demands, results)
	}
	return s.run(w, op, now, driver.Demand.Step)
}

type stepping func(driver.Demand, []byte, int64) ([]byte, time.Duration, driver.Result)

func (s *search) run(w world, op operation, now int64, step stepping) (world, []driver.Result) {
	results := make([]driver.Result, len(op.Demands))
	after := w
	after.states, after.clocks = slices.Clone(w.states), slices.Clone(w.clocks)
	for i, d := range op.Demands {
		n := op.states[i]
		var next []byte
		var keep time.Duration
		next, keep, results[i] = step(d, bytes.Clone([]byte(w.states[n])), now)
		if keep > 0 {
			after.states[n] = string(next)
		}
		if s.clock == Steady {
			after.clocks[n] = now
		}
	}
	return after, results
}
