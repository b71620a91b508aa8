//go:build !race

package exhaustive

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

const (
	mostCalls  = 6
	clients    = 3
	mostPlaces = 4
)

// ids are those of the clients' holds. Their order is not that of the clients.
var ids = [clients]uint64{1 << 40, 7, 1<<63 + 5}

// A call is one demand, without its key and algorithm.
type call struct {
	op       driver.Op
	n, least int64
	at       int64 // before now, of an OpForce; 0 is none
	client   int   // whose ID it has, or nobody
	long     bool  // whether it holds for twice the time-out
}

func (c call) part(free int64) call {
	c.n, c.least = min(c.n, max(c.least, free)), 0
	return c
}

// since returns c at a time, with At as a time.
func (c call) since(now int64) call {
	if c.at > 0 {
		c.at = now - c.at
	}
	return c
}

func (c call) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v %d", c.op, c.n)
	if c.least > 0 {
		fmt.Fprintf(&b, " or at least %d", c.least)
	}
	if c.at > 0 {
		fmt.Fprintf(&b, " as of %v ago", micros(c.at))
	}
	if c.long {
		b.WriteString(" for twice the time-out")
	}
	if c.client != nobody {
		fmt.Fprintf(&b, " by client %d", c.client+1)
	}
	return b.String()
}

// A place is a key with a limit.
type place struct {
	key       string
	algorithm driver.Algorithm
	plain     *rule // nil if there is no plain model of the algorithm
}

func (p place) demand(now int64, c call) driver.Demand {
	d := driver.Demand{Key: p.key, Algorithm: p.algorithm, Op: c.op, N: c.n, Least: c.least}
	if c.at > 0 {
		d.At = now - c.at
	}
	if c.client != nobody {
		d.ID = ids[c.client]
	}
	if c.long {
		d.HoldTimeout = 2 * p.algorithm.(driver.Holder).HoldTimeout()
	}
	return d
}

// A state is what a store keeps, and the model beside it.
type state struct {
	bytes string
	ends  int64 // when the store may forget it
	plain plain
}

type step func(d driver.Demand, state []byte, now int64) ([]byte, time.Duration, driver.Result)

// A store runs steps as the contract says. Faults replace what it calls.
type store struct {
	peek, step step
	grant      func(ds []driver.Demand, peeked []driver.Result) []driver.Demand
	hasty      bool // a planted fault: it takes no notice of refusals
}

func newStore() *store {
	return &store{peek: driver.Demand.Peek, step: driver.Demand.Step, grant: driver.Grant}
}

// take decides the demands of a call together, and changes the states of n.
func (s *store) take(ds []driver.Demand, by []on, n *node) (problem string) {
	if len(ds) > 1 {
		admitted, problem := s.run(s.peek, ds, by, n)
		if !admitted && !s.hasty || problem != "" {
			return problem
		}
		ds = s.grant(ds, n.out)
	}
	_, problem = s.run(s.step, ds, by, n)
	return problem
}

func (s *store) run(step step, ds []driver.Demand, by []on, n *node) (admitted bool, p string) {
	admitted = true
	for i, d := range ds {
		st := &n.states[by[i].place]
		given := []byte(st.bytes)
		next, keep, res := step(d, given, n.now)
		switch {
		case keep < 0:
			return false, "the state is corrupt"
		case keep == 0 && string(given) != st.bytes:
			return false, "the state changed without a write"
		case keep > 0:
			st.bytes, st.ends = string(next), n.now+keep.Microseconds()
		}
		n.out[i], admitted = res, admitted && res.Allowed
	}
	return admitted, ""
}

// plain decides the demands of a call by the model, or none if it knows no limit of these.
func (s *scope) plain(by []on, n *node) []driver.Result {
	want := s.want[:0]
	at := func(o on) (*rule, *plain, call) {
		return s.places[o.place].plain, &n.states[o.place].plain, o.call.since(n.now)
	}
	admitted, free := true, int64(1<<62)
	for _, o := range by {
		r, p, c := at(o)
		if r == nil {
			return nil
		}
		if len(by) == 1 {
			return append(want, p.decide(*r, n.now, c))
		}
		res := p.peek(*r, n.now, c)
		want, admitted = append(want, res), admitted && res.Allowed
		if c.least > 0 {
			free = min(free, res.Remaining)
		}
	}
	if !admitted {
		return want
	}
	for i, o := range by {
		r, p, c := at(o)
		if c.least > 0 {
			c = c.part(free)
		}
		want[i] = p.decide(*r, n.now, c)
	}
	return want
}

// alike reports whether an answer is that of the model.
func alike(got, want driver.Result) bool {
	return got.Allowed == want.Allowed && got.Remaining == want.Remaining &&
		got.Units == want.Units && got.RetryAfter == want.RetryAfter &&
		got.ResetAfter == want.ResetAfter
}

func show(res driver.Result) string {
	if !res.Allowed {
		return fmt.Sprintf("refused for %v, %d free", res.RetryAfter, res.Remaining)
	}
	return fmt.Sprintf("admitted, %d units, %d free, all in %v", res.Units, res.Remaining,
		res.ResetAfter)
}

// ask runs a step on a state without changing it.
func (s *store) ask(d driver.Demand, st *state, now int64) (driver.Result, bool) {
	given := []byte(st.bytes)
	next, keep, res := s.step(d, given, now)
	return res, keep > 0 && !bytes.Equal(next, []byte(st.bytes))
}
