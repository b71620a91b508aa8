package conformance

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// cacheFault is what is wrong with a cache of refusals. The zero value is nothing.
type cacheFault struct {
	keeps     func(d driver.Demand) bool // demands that change a state and drop nothing
	deaf      bool                       // to what other clients do
	fewer     bool                       // also used for fewer units
	parts     bool                       // also used if a part, of fewer units, is enough
	anyParams bool                       // also used for other parameters
	frozen    bool                       // RetryAfter stands still
	forever   bool                       // does not look at the clock
	quiet     bool                       // does not set SourceCache

	// of a refused TakeAll of two
	onlyFirst   bool // is dropped only when the state of the first demand changes
	onlySecond  bool // or of the second
	last        bool // ends with the last RetryAfter, not with the first
	moreOfOther bool // used for more units of a demand that is not refused
	quietOther  bool // sets SourceStore for demands that are not refused
}

type cached struct {
	client *reference
	first  question
	second question // of a TakeAll of two
}

type question struct {
	key, name string // of the state
	limit     driver.Algorithm
}

func (q question) of(d driver.Demand) bool {
	return q.key == d.Key && q.name == d.Algorithm.Limit().Name
}

type cachedRefusal struct {
	ds  []driver.Demand
	at  int64
	out []driver.Result
}

// caching returns bugs that put a cache of refusals in front of each client, of a Take and of a
// TakeAll of two.
func caching(fault cacheFault) bugs {
	var mu sync.Mutex
	refusals := make(map[cached]cachedRefusal)
	entry := func(r *reference, ds []driver.Demand) cached {
		var qs [2]question
		for i, d := range ds {
			qs[i] = question{d.Key, d.Algorithm.Limit().Name, unwrap(d.Algorithm)}
			if fault.anyParams {
				qs[i].limit = nil
			}
		}
		return cached{r, qs[0], qs[1]}
	}
	drop := func(r *reference, d driver.Demand) {
		if fault.keeps != nil && fault.keeps(d) {
			return
		}
		for c := range refusals {
			several := c.second.key != ""
			of := c.first.of(d) && (!several || !fault.onlySecond) ||
				c.second.of(d) && !fault.onlyFirst
			if c.client.shared == r.shared && of && (!fault.deaf || c.client == r) {
				delete(refusals, c)
			}
		}
	}
	// rewind drops the refusals that are later than the clock: after a step back of the clock even
	// a peek may rewrite a state.
	rewind := func(r *reference) {
		now := r.clock()
		maps.DeleteFunc(refusals, func(c cached, refusal cachedRefusal) bool {
			return c.client.shared == r.shared && refusal.at > now && !fault.forever
		})
	}
	// answer returns a refusal of ds that holds.
	answer := func(r *reference, ds []driver.Demand, out []driver.Result) bool {
		if len(ds) > 2 || slices.ContainsFunc(ds, func(d driver.Demand) bool {
			return d.Op != driver.OpTake
		}) {
			return false
		}
		c, ok := refusals[entry(r, ds)]
		if !ok {
			return false
		}
		elapsed := time.Duration(r.clock()-c.at) * time.Microsecond
		holds, last := true, time.Duration(0)
		for i, d := range ds {
			n, than := d.LeastUnits(), c.ds[i].LeastUnits()
			if fault.parts {
				n = d.N
			}
			beyond := n < than && !fault.fewer
			if c.out[i].Allowed {
				beyond = n > than && !fault.moreOfOther
			} else if !fault.last && !fault.forever {
				holds = holds && elapsed < c.out[i].RetryAfter
			}
			last = max(last, c.out[i].RetryAfter)
			holds = holds && !beyond
		}
		if !holds || elapsed >= last && !fault.forever {
			return false
		}
		for i := range ds {
			out[i] = c.out[i]
			if !fault.quiet && (!fault.quietOther || !out[i].Allowed) {
				out[i].Source = driver.SourceCache
			}
			if !fault.frozen {
				out[i].ResetAfter = max(0, out[i].ResetAfter-elapsed)
				if !out[i].Allowed {
					out[i].RetryAfter -= elapsed
				}
			}
		}
		return true
	}
	// learn keeps a refusal of ds, or drops what they have changed.
	learn := func(r *reference, ds []driver.Demand, now int64, out []driver.Result) {
		takes, peeks := len(ds) <= 2, true
		for _, d := range ds {
			takes = takes && d.Op == driver.OpTake
			peeks = peeks && d.Op == driver.OpPeek
		}
		switch {
		case peeks:
		case allowed(out):
			for _, d := range ds {
				drop(r, d)
			}
		case takes:
			refusals[entry(r, ds)] = cachedRefusal{slices.Clone(ds), now, slices.Clone(out)}
		}
	}
	return bugs{
		take: func(r *reference, _ context.Context, d driver.Demand) step {
			mu.Lock()
			defer mu.Unlock()
			rewind(r)
			ds, out := []driver.Demand{d}, make([]driver.Result, 1)
			if answer(r, ds, out) {
				return step{res: out[0]}
			}
			now := r.clock()
			s := r.one(d)
			if s.err == nil {
				learn(r, ds, now, []driver.Result{s.res})
			}
			return s
		},
		all: func(
			r *reference, _ context.Context, ds []driver.Demand, out []driver.Result,
		) error {
			mu.Lock()
			defer mu.Unlock()
			rewind(r)
			if answer(r, ds, out) {
				return nil
			}
			now := r.clock()
			err := r.several(ds, out)
			if err == nil {
				learn(r, ds, now, out)
			}
			return err
		},
	}
}

func isOp(op driver.Op) func(driver.Demand) bool {
	return func(d driver.Demand) bool { return d.Op == op }
}

var cacheFaults = []fault{
	{name: "cached refusal outlives an admission", rules: "result/repeated", always: true,
		bugs: caching(cacheFault{keeps: isOp(driver.OpTake)})},
	{name: "cached refusal outlives a reset", rules: "result/repeated",
		bugs: caching(cacheFault{keeps: isOp(driver.OpReset)})},
	{name: "cached refusal outlives others' resets", rules: "result/repeated-two-clients",
		bugs: caching(cacheFault{deaf: true})},
	{name: "cached refusal for fewer units", rules: "result/repeated",
		bugs: caching(cacheFault{fewer: true})},
	{name: "cached refusal for other parameters", rules: "result/repeated",
		bugs: caching(cacheFault{anyParams: true})},
	{name: "cached refusal where a part is free", always: true, rules: "least/repeated",
		bugs: caching(cacheFault{parts: true})},
	{name: "cached refusal whose time stands still", rules: "result/repeated",
		bugs: caching(cacheFault{frozen: true})},
	{name: "cached refusal beyond its time", rules: "result/repeated result/retry-after",
		bugs: caching(cacheFault{forever: true})},
	{name: "cached refusal said to be the store's", rules: "result/repeated",
		bugs: caching(cacheFault{quiet: true})},
	{name: "cached TakeAll outlives a change of its second state", rules: "takeall/repeated",
		bugs: caching(cacheFault{onlyFirst: true})},
	{name: "cached TakeAll outlives a change of its first state", rules: "takeall/repeated",
		bugs: caching(cacheFault{onlySecond: true})},
	{name: "cached TakeAll outlives its first RetryAfter", rules: "takeall/repeated",
		bugs: caching(cacheFault{last: true})},
	{name: "cached TakeAll for more units of a demand not refused", rules: "takeall/repeated",
		bugs: caching(cacheFault{moreOfOther: true})},
	{name: "cached TakeAll in part said to be the store's", rules: "takeall/repeated",
		bugs: caching(cacheFault{quietOther: true})},
	{name: "cached TakeAll outlives others' resets", rules: "takeall/repeated-two-clients",
		bugs: caching(cacheFault{deaf: true})},
}

// TestSoundCache checks that the suite accepts a store with a correct cache.
func TestSoundCache(t *testing.T) {
	t.Parallel() // some cases wait
	Run(t, newReference(caching(cacheFault{})), &Options{Except: slow()})
}
