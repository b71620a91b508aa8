//go:build !race

package exhaustive

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"

	"github.com/truewindow/ratelimit/driver"
)

// A scope is what is explored: all sequences of a number of calls, with a move of the clock before
// each.
type scope struct {
	places []place
	calls  [][]on  // each is a call of the store, with one demand or several
	moves  []int64 // µs
	depth  int
	store  *store

	ds    []driver.Demand // of the call that is made
	want  []driver.Result // what the model answers
	bytes map[string]string
}

// on is a call at a place.
type on struct {
	place int
	call  call
}

// A node is reached by a sequence of calls.
type node struct {
	situation
	states []state // by place
	from   *node
	by     []on
	out    []driver.Result
}

// A situation is, with the states, all that matters to what follows.
type situation struct {
	now  int64
	ids  int  // clients that have held anything: the next one is like all others
	back bool // the clock has been set back
}

// start is a multiple of all that deadlines are rounded to.
const start = int64(1) << 50

// explore returns the shortest sequence that the model, or a sentence of the contract, contradicts,
// or "", the number of states and that of calls.
func (s *scope) explore() (problem string, states, calls int) {
	s.ds, s.want = make([]driver.Demand, 0, len(s.places)), make([]driver.Result, 0, len(s.places))
	s.bytes = make(map[string]string)
	s.calls = slices.DeleteFunc(slices.Clone(s.calls), s.invalid)
	seed := maphash.MakeSeed()
	seen := make(map[uint64]struct{})
	none := &node{situation: situation{now: start}, states: make([]state, len(s.places))}
	level := []*node{none}
	var to node
	for depth := 1; depth <= s.depth; depth++ {
		var next []*node
		for _, n := range level {
			for _, move := range s.moves {
				for _, by := range s.calls {
					if !n.symmetric(by) {
						continue
					}
					calls++
					if problem := s.do(&to, n, move, by); problem != "" {
						return s.trace(&to) + problem, len(seen), calls
					}
					if depth == s.depth {
						continue
					}
					key := to.hash(seed)
					if _, ok := seen[key]; ok {
						continue
					}
					if problem := s.checkFree(&to); problem != "" {
						return s.trace(&to) + problem, len(seen), calls
					}
					seen[key] = struct{}{}
					next = append(next, s.keep(&to))
				}
			}
		}
		level = next
	}
	return "", len(seen), calls
}

// invalid reports whether no store decides a call, such as one for more than Max.
func (s *scope) invalid(by []on) bool {
	var ds []driver.Demand
	for _, o := range by {
		ds = append(ds, s.places[o.place].demand(start, o.call))
	}
	return driver.CheckTakeAll(context.Background(), ds, make([]driver.Result, len(ds))) != nil
}

// keep returns a copy of n that shares its bytes with others.
func (s *scope) keep(n *node) *node {
	kept := *n
	kept.states, kept.out = slices.Clone(n.states), nil
	for i := range kept.states {
		b := &kept.states[i].bytes
		if same, ok := s.bytes[*b]; ok {
			*b = same
		} else {
			s.bytes[*b] = *b
		}
	}
	return &kept
}

// hash identifies what can follow n.
func (n *node) hash(seed maphash.Seed) uint64 {
	var hashes [mostPlaces]uint64
	for i, st := range n.states {
		hashes[i] = maphash.Comparable(seed, st)
	}
	return maphash.Comparable(seed, struct {
		situation
		states [mostPlaces]uint64
	}{n.situation, hashes})
}

// symmetric reports whether the clients of a call are among the first that have none like them.
func (n *node) symmetric(by []on) bool {
	for _, o := range by {
		if o.call.client > n.ids {
			return false
		}
	}
	return true
}

// do makes a call after n, checks it, and sets to.
func (s *scope) do(to, n *node, move int64, by []on) (problem string) {
	to.situation, to.from, to.by = n.situation, n, by
	to.states, to.out = append(to.states[:0], n.states...), to.out[:0]
	to.now, to.back = n.now+move, n.back || move < 0
	for range by {
		to.out = append(to.out, driver.Result{})
	}
	for i := range to.states {
		if st := &to.states[i]; st.bytes != "" && to.now >= st.ends {
			if problem := s.forget(to, i, by); problem != "" {
				return problem
			}
			*st = state{}
		}
	}
	var before [mostPlaces]string
	ds := s.ds[:0]
	for i, o := range by {
		ds = append(ds, s.places[o.place].demand(to.now, o.call))
		to.ids = max(to.ids, o.call.client+1)
		before[i] = to.states[o.place].bytes
	}
	if problem := s.store.take(ds, by, to); problem != "" {
		return problem
	}
	for i, want := range s.plain(by, to) {
		if !alike(to.out[i], want) {
			return "the model: " + show(want)
		}
	}
	for i, o := range by {
		if problem := s.check(to, o.place, ds[i], to.out[i], before[i],
			len(by) == 1); problem != "" {
			return problem
		}
	}
	return ""
}

// forget checks that a state that has run out decides the demands of a call like an empty one, and
// that the model does.
func (s *scope) forget(n *node, place int, by []on) string {
	for _, o := range by {
		if o.place != place {
			continue
		}
		d := s.places[place].demand(n.now, o.call)
		kept, _ := s.store.ask(d, &n.states[place], n.now)
		forgotten, _ := s.store.ask(d, new(state), n.now)
		if kept == forgotten && s.places[place].plain != nil {
			p := n.states[place].plain
			kept = p.decide(*s.places[place].plain, n.now, o.call.since(n.now))
			p = plain{}
			forgotten = p.decide(*s.places[place].plain, n.now, o.call.since(n.now))
		}
		if kept != forgotten {
			return fmt.Sprintf("the state has run out, but %v is %s, and on an empty one %s",
				o.call, show(kept), show(forgotten))
		}
	}
	return ""
}

// check checks an answer by the sentences of the contract. alone is a call of one demand.
func (s *scope) check(
	n *node, at int, d driver.Demand, res driver.Result, before string, alone bool,
) string {
	p, after := s.places[at], &n.states[at]
	limit := p.algorithm.Limit()
	reads := d.Op == driver.OpPeek || !res.Allowed
	if reads && before != after.bytes && !n.back {
		return "it has written"
	}
	if !n.back && p.plain != nil {
		if needed := after.plain.needed(*p.plain, n.now); needed > limit.Max {
			return fmt.Sprintf("%d units in the window and on hold, the limit is %d", needed,
				limit.Max)
		}
	}
	if !res.Allowed {
		return s.checkRetry(n, d, res, after)
	}
	if !alone {
		return ""
	}
	again, wrote := s.store.ask(d, after, n.now)
	switch {
	case d.Op == driver.OpSettle && (again.Units != 0 || wrote):
		return "once more: " + show(again)
	case d.Op == driver.OpHold && (!again.Allowed || d.Least == 0 && again.Units != res.Units ||
		d.Least == 0 && again.Remaining != res.Remaining):
		return "once more: " + show(again)
	}
	return ""
}

// checkRetry checks that the demand is admitted after RetryAfter and not sooner.
func (s *scope) checkRetry(n *node, d driver.Demand, res driver.Result, st *state) string {
	wait := res.RetryAfter.Microseconds()
	if later, _ := s.store.ask(d, st, n.now+wait); wait < 1 || !later.Allowed {
		return "after RetryAfter: " + show(later)
	}
	if sooner, _ := s.store.ask(d, st, n.now+wait-1); sooner.Allowed {
		return "1µs before RetryAfter: " + show(sooner)
	}
	return ""
}

// checkFree checks that as many units are free as the answers say and no more, and that all are
// free after ResetAfter and not sooner.
func (s *scope) checkFree(n *node) string {
	for i, o := range n.by {
		p, st, res := s.places[o.place], &n.states[o.place], n.out[i]
		most, reset := p.algorithm.Limit().Max, res.ResetAfter.Microseconds()
		for _, ask := range []struct{ units, after int64 }{
			{res.Remaining, 0}, {res.Remaining + 1, 0}, {most, reset}, {most, reset - 1},
		} {
			if ask.units < 1 || ask.units > most || ask.after < 0 {
				continue
			}
			want := ask.units <= res.Remaining || ask.after == reset
			peek := p.demand(n.now, call{op: driver.OpPeek, n: ask.units, client: nobody})
			got, _ := s.store.ask(peek, st, n.now+ask.after)
			if got.Allowed != want {
				return fmt.Sprintf("a peek at %d units after %v: %s", ask.units,
					micros(ask.after), show(got))
			}
		}
	}
	return ""
}

// trace returns the calls that lead to n, each with its answer.
func (s *scope) trace(n *node) string {
	if n.from == nil {
		return "\n"
	}
	var b strings.Builder
	b.WriteString(s.trace(n.from))
	var again node
	s.do(&again, n.from, n.now-n.from.now, n.by)
	fmt.Fprintf(&b, "%v:", micros(n.now-start))
	for i, o := range n.by {
		if i > 0 {
			b.WriteString(", with")
		}
		p := s.places[o.place]
		fmt.Fprintf(&b, " %v of %s under %v: %s", o.call, p.key, p.algorithm.Limit(),
			show(again.out[i]))
	}
	b.WriteString("\n")
	return b.String()
}
