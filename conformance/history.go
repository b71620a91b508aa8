package conformance

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

// lives are the numbers of rounds after which a new key is used. Each key has a history of its own,
// and a failure in a short history is easier to read.
var lives = []int{1, 2, 4, 1, 1, 3, 4}

// checkRecorded records what clients do at once, in rounds in which the clock stands still, and has
// the history checked.
func checkRecorded(e *env, client func(*env, int) driver.Store) {
	const clients = 6
	rec := &callRecorder{env: e, client: client,
		limits: []driver.Algorithm{e.algOf("a", 4), e.algOf("b", 7)},
		held:   []driver.Algorithm{heldBy("h", 4), heldBy("i", 6)},
		begin:  time.Now()}
	life := 0
	for round := range e.rounds(25) {
		if life == 0 {
			rec.key, life = e.key(), lives[len(rec.keys)%len(lives)]
			rec.keys = append(rec.keys, nil)
		}
		life--
		e.clock.add(time.Duration(e.rand.Int64N(int64(window/4))) - time.Second)
		rec.now = e.clock.now()
		e.settle()
		rec.settled = time.Since(rec.begin)
		recorded := make([][]Operation, clients)
		e.together(clients, func(c int) (err error) {
			recorded[c], err = rec.calls(c, rand.New(rand.NewPCG(e.seed, uint64(round*clients+c))))
			return err
		})
		rec.extendCached(recorded)
		for _, ops := range recorded {
			rec.keys[len(rec.keys)-1] = append(rec.keys[len(rec.keys)-1], ops...)
		}
	}
	for _, history := range rec.keys {
		if err := e.checkHistory(history); err != nil {
			part := shorten(rec.keys, err, e.checkHistory, time.Now().Add(5*time.Second))
			if part == nil {
				part = history
			}
			e.fatalf("the history of %d calls is not linearizable (%s=%d makes the same calls "+
				"again): %w\n"+
				"These %d of the calls are enough:\n%s",
				len(history), seedVar, e.seed, err, len(part), table(part))
		}
	}
}

// heldBy returns a log with holds.
func heldBy(name string, most int64) driver.Algorithm {
	return algorithm.Budget(algorithm.SlidingLog(driver.Limit{Name: name, Max: most,
		Window: window}))
}

// callRecorder makes calls and records them.
type callRecorder struct {
	*env
	client  func(*env, int) driver.Store
	limits  []driver.Algorithm
	held    []driver.Algorithm
	begin   time.Time
	settled time.Duration
	key     string
	now     int64 // the clock
	keys    [][]Operation
}

// calls makes four calls as client c.
func (rec *callRecorder) calls(c int, r *rand.Rand) (ops []Operation, err error) {
	for range 4 {
		ds := rec.demands(r)
		if r.IntN(6) == 0 {
			for i := range ds {
				if d := &ds[i]; d.Op == driver.OpTake || d.Op == driver.OpHold && d.N > 0 {
					d.N, d.Least = 3, 1
				}
			}
		}
		op := Operation{Client: c, Now: rec.now, Demands: ds,
			Results: make([]driver.Result, len(ds)), Call: time.Since(rec.begin)}
		if len(ds) == 1 {
			op.Results[0], err = rec.client(rec.env, c).Take(rec.ctx, ds[0])
		} else {
			err = rec.client(rec.env, c).TakeAll(rec.ctx, ds, op.Results)
		}
		op.Return = time.Since(rec.begin)
		if err != nil {
			return nil, err
		}
		ops = append(ops, op)
	}
	return ops, nil
}

// demands returns one or two demands on the limits, or on those with holds.
func (rec *callRecorder) demands(r *rand.Rand) []driver.Demand {
	ds := []driver.Demand{take(rec.key, rec.limits[r.IntN(2)], 1+r.Int64N(2))}
	if !rec.lacks("takeall") && r.IntN(3) == 0 {
		ds = []driver.Demand{take(rec.key, rec.limits[0], 1), take(rec.key, rec.limits[1], 1)}
	}
	switch d := &ds[0]; r.IntN(8) {
	case 0:
		d.Op = driver.OpPeek
	case 1, 2:
		op, id, first := pick(r, driver.OpHold, driver.OpHold, driver.OpSettle), r.IntN(4),
			r.IntN(2)
		for i := range ds {
			d := &ds[i]
			d.Algorithm, d.ID = rec.held[(first+i)%2], uint64(1+id)
			d.Op, d.N = op, r.Int64N(3)
			if r.IntN(3) == 0 {
				op, id = driver.OpHold+driver.OpSettle-op, r.IntN(4) // of the next demand
			}
		}
	case 3:
		if r.IntN(4) == 0 {
			d.Op = pick(r, driver.OpForce, driver.OpReset)
			d.Algorithm = pick(r, d.Algorithm, rec.held[0])
		}
	}
	return ds
}

// extendCached moves the beginning of each cached refusal before the calls that it need not count:
// those that had not returned, and with two clients any of this round.
func (rec *callRecorder) extendCached(recorded [][]Operation) {
	made := slices.Concat(recorded...)
	for _, ops := range recorded {
		for i := range ops {
			op := &ops[i]
			if op.Results[0].Source != driver.SourceCache {
				continue
			}
			if rec.second != nil {
				op.Call = rec.settled
				continue
			}
			asked := op.Call
			for _, other := range made {
				if other.Call <= asked && asked <= other.Return {
					op.Call = min(op.Call, other.Call)
				}
			}
		}
	}
}

// A shortener looks for a small part of a history that fails the check in the same way as the
// whole.
type shortener struct {
	check    func([]Operation) error
	whole    error
	deadline time.Time
}

// shorten returns the shortest part that it finds until the deadline, or nil. histories have no
// state in common. Each of them begins without a state, so a part must begin where one of them
// begins.
func shorten(
	histories [][]Operation, whole error, check func([]Operation) error, deadline time.Time,
) []Operation {
	s := shortener{check, whole, deadline}
	var shortest []Operation
	for _, ops := range histories {
		if s.fails(ops) {
			if ops = s.without(s.prefix(ops)); shortest == nil || len(ops) < len(shortest) {
				shortest = ops
			}
		}
	}
	return shortest
}

func (s shortener) fails(ops []Operation) bool {
	if time.Now().After(s.deadline) {
		return false
	}
	err := s.check(ops)
	return err != nil && (errors.Is(err, s.whole) || err.Error() == s.whole.Error())
}

// prefix returns the shortest beginning of ops that fails. A history that is linearizable is so up
// to any instant.
func (s shortener) prefix(ops []Operation) []Operation {
	ends := slices.SortedFunc(slices.Values(ops),
		func(a, b Operation) int { return cmp.Compare(a.Return, b.Return) })
	low, high := 0, len(ends)-1
	for low < high {
		middle := (low + high) / 2
		if s.failsUntil(ops, ends[middle].Return) {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return until(ops, ends[high].Return)
}

// until returns the calls that had returned at an instant, and then those in flight.
func until(ops []Operation, end time.Duration) []Operation {
	part := slices.DeleteFunc(slices.Clone(ops), func(op Operation) bool { return op.Call > end })
	slices.SortFunc(part, func(a, b Operation) int { return cmp.Compare(a.Return, b.Return) })
	return part
}

// mostUnderway bounds what failsUntil tries. There are more only where results came from a cache.
const mostUnderway = 8

// failsUntil reports whether the calls that had returned at an instant fail together with any
// choice of those in flight, which may have taken effect.
func (s shortener) failsUntil(ops []Operation, end time.Duration) bool {
	part := until(ops, end)
	returned := 0
	for returned < len(part) && part[returned].Return <= end {
		returned++
	}
	underway := part[returned:]
	if len(underway) > mostUnderway {
		return false
	}
	for chosen := range 1 << len(underway) {
		tried := slices.Clone(part[:returned])
		for i, op := range underway {
			if chosen>>i&1 == 1 {
				tried = append(tried, op)
			}
		}
		if !s.fails(tried) {
			return false
		}
	}
	return true
}

// without leaves out peeks and refused calls, as long as the others still fail. The clock of a
// recording never steps back by a Window, so these calls change nothing.
func (s shortener) without(ops []Operation) []Operation {
	if !s.fails(ops) {
		return ops
	}
	for i := len(ops) - 1; i >= 0; i-- {
		changesNothing := !slices.ContainsFunc(ops[i].Demands,
			func(d driver.Demand) bool { return d.Op != driver.OpPeek }) ||
			!allowed(ops[i].Results)
		if !changesNothing {
			continue
		}
		if less := slices.Delete(slices.Clone(ops), i, i+1); s.fails(less) {
			ops = less
		}
	}
	return ops
}

// table lists calls in the order in which they were made.
func table(ops []Operation) string {
	ops = slices.SortedFunc(slices.Values(ops),
		func(a, b Operation) int { return cmp.Compare(a.Call, b.Call) })
	var b strings.Builder
	for i, op := range ops {
		if i == 0 || op.Now != ops[i-1].Now {
			fmt.Fprintf(&b, "at %d:\n", op.Now)
		}
		fmt.Fprintf(&b, "\tclient %d, %8v to %8v: ", op.Client,
			(op.Call - ops[0].Call).Round(time.Microsecond),
			(op.Return - ops[0].Call).Round(time.Microsecond))
		for j, d := range op.Demands {
			if j > 0 {
				b.WriteString(" and ")
			}
			b.WriteString(outcome(d, op.Results[j]))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// outcome says what a demand was and how it was answered.
func outcome(d driver.Demand, res driver.Result) string {
	limit := d.Algorithm.Limit()
	what := fmt.Sprintf("%v %d of %s", d.Op, d.N, limit.Name)
	if d.Least > 0 {
		what = fmt.Sprintf("%v %d to %d of %s", d.Op, d.Least, d.N, limit.Name)
	}
	switch d.Op {
	case driver.OpReset:
		what = "reset " + limit.Name
	case driver.OpHold, driver.OpSettle:
		what += fmt.Sprintf(" by ID %d: %d", d.ID, res.Units)
	}
	what += fmt.Sprintf(": %d of %d left", res.Remaining, res.Limit.Max)
	if !res.Allowed {
		what += fmt.Sprintf(", refused for %v", res.RetryAfter)
	}
	if res.ResetAfter > 0 {
		what += fmt.Sprintf(", all in %v", res.ResetAfter)
	}
	if res.Source != driver.SourceStore {
		what += fmt.Sprintf(" (%v)", res.Source)
	}
	return what
}
