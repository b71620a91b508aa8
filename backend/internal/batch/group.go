package batch

import (
	"slices"

	"github.com/truewindow/ratelimit/driver"
)

// A Group is what a batch decides together: one demand, the demands of one TakeAll, or equal Takes
// of one key with no other request on that key between them. A client may hold it after its callers
// have stopped waiting, so the keys of Demands are not the callers' strings.
type Group struct {
	Keys    []string        // stored keys of Demands
	Demands []driver.Demand // whose Key is a copy, a hash or empty
	Times   int             // number of equal Takes; 1 for other groups
	Results []driver.Result // one for each demand, or for each of the equal Takes
	Err     error           // why the demands whose Result has no Limit were not decided
	Panic   any             // what the algorithm panicked with, for the callers
	Wrote   bool            // the server wrote a state although it recorded nothing

	requests []*request
}

// set makes g the group of r.
func (g *Group) set(r *request) {
	g.Keys, g.Demands, g.Times = r.keys, r.demands, 1
	g.Err, g.Panic, g.Wrote = nil, nil, false
	g.requests = append(g.requests[:0], r)
}

// merge adds r to g if all of both are equal Takes, and reports whether it did.
func (g *Group) merge(r *request) bool {
	if len(g.Demands) > 1 || g.Demands[0].Op != driver.OpTake || g.Demands[0] != r.demands[0] {
		return false
	}
	g.Times++
	g.requests = append(g.requests, r)
	return true
}

// size returns the number of demands and of equal Takes.
func (g *Group) size() int { return max(g.Times, len(g.Demands)) }

// markSent marks the requests of g as sent in b, and drops the abandoned ones. It reports whether
// any are left.
func (g *Group) markSent(b *batch) bool {
	g.requests = slices.DeleteFunc(g.requests, func(r *request) bool {
		r.batch = b
		return !r.state.CompareAndSwap(queued, sent)
	})
	if len(g.Demands) == 1 {
		g.Times = len(g.requests)
	}
	n := g.size()
	g.Results = slices.Grow(g.Results[:0], n)[:n]
	clear(g.Results)
	return len(g.requests) > 0
}

// deliver passes the outcome to the callers that wait for it. panicked is what the batch panicked
// with, or nil.
func (g *Group) deliver(panicked any) {
	if panicked == nil {
		panicked = g.Panic
	}
	for i, r := range g.requests {
		if !r.state.CompareAndSwap(sent, answered) {
			continue
		}
		switch {
		case panicked != nil:
			r.panic = panicked
		case g.Err != nil && (len(g.Demands) > 1 || g.Results[i].Limit.Max == 0):
			r.err = g.Err
		case len(g.Demands) > 1:
			copy(r.results, g.Results)
		default:
			r.results[0] = g.Results[i]
		}
		r.done <- struct{}{}
	}
}

// clear makes g empty and keeps its arrays.
func (g *Group) clear() {
	clear(g.requests[:cap(g.requests)])
	*g = Group{requests: g.requests[:0], Results: g.Results[:0]}
}
