package conformance

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
)

// cacheFault is what is wrong with a cache of refusals. The zero value is nothing.
type cacheFault struct {
	keeps     func(d ratelimit.Demand) bool // what changes a state and drops nothing
	deaf      bool                          // to what other clients do
	fewer     bool                          // answers fewer units too
	anyParams bool                          // answers other parameters too
	frozen    bool                          // RetryAfter stands still
	forever   bool                          // does not look at the clock
	quiet     bool                          // does not say that it is a cache
}

type cached struct {
	client *reference
	key    string
	limit  ratelimit.Algorithm
}

type cachedRefusal struct {
	n, at int64
	res   ratelimit.Result
}

// caching returns bugs that put a cache of refusals in front of each client.
func caching(fault cacheFault) bugs {
	var mu sync.Mutex
	refusals := make(map[cached]cachedRefusal)
	question := func(r *reference, d ratelimit.Demand) cached {
		q := cached{r, d.Key, unwrap(d.Algorithm)}
		if fault.anyParams {
			q.limit = nil
		}
		return q
	}
	drop := func(r *reference, d ratelimit.Demand) {
		if fault.keeps != nil && fault.keeps(d) {
			return
		}
		for q := range refusals {
			if q.client.shared == r.shared && q.key == d.Key && (!fault.deaf || q.client == r) {
				delete(refusals, q)
			}
		}
	}
	return bugs{
		take: func(r *reference, _ context.Context, d ratelimit.Demand) step {
			mu.Lock()
			defer mu.Unlock()
			now := r.clock()
			q := question(r, d)
			if c, ok := refusals[q]; ok && d.Op == ratelimit.Take && (d.N >= c.n || fault.fewer) {
				elapsed := time.Duration(now-c.at) * time.Microsecond
				if elapsed >= 0 && elapsed < c.res.RetryAfter || fault.forever {
					res := c.res
					if !fault.quiet {
						res.Source = ratelimit.SourceCache
					}
					if !fault.frozen {
						res.RetryAfter -= elapsed
						res.ResetAfter -= elapsed
					}
					return step{res: res}
				}
			}
			s := r.one(d)
			switch {
			case s.err != nil || d.Op == ratelimit.Look:
			case d.Op == ratelimit.Take && !s.res.Allowed:
				refusals[q] = cachedRefusal{d.N, now, s.res}
			default:
				drop(r, d)
			}
			return s
		},
		all: func(r *reference, _ context.Context, ds []ratelimit.Demand, out []ratelimit.Result) error {
			mu.Lock()
			defer mu.Unlock()
			err := r.several(ds, out)
			for _, d := range ds {
				drop(r, d)
			}
			return err
		},
	}
}

func isOp(op ratelimit.Op) func(ratelimit.Demand) bool {
	return func(d ratelimit.Demand) bool { return d.Op == op }
}

var cacheFaults = []fault{
	{name: "cached refusal outlives a reset", rules: "result/repeated", bugs: caching(cacheFault{keeps: isOp(ratelimit.Reset)})},
	{name: "cached refusal outlives a give-back", rules: "result/repeated", bugs: caching(cacheFault{keeps: isOp(ratelimit.GiveBack)})},
	{name: "cached refusal outlives others' give-backs", rules: "result/repeated-two-clients", bugs: caching(cacheFault{deaf: true})},
	{name: "cached refusal for fewer units", rules: "result/repeated", bugs: caching(cacheFault{fewer: true})},
	{name: "cached refusal for other parameters", rules: "result/repeated", bugs: caching(cacheFault{anyParams: true})},
	{name: "cached refusal whose time stands still", rules: "result/repeated", bugs: caching(cacheFault{frozen: true})},
	{name: "cached refusal beyond its time", rules: "result/repeated result/retry-after", bugs: caching(cacheFault{forever: true})},
	{name: "cached refusal said to be the store's", rules: "result/repeated", bugs: caching(cacheFault{quiet: true})},
}

// TestSoundCache sees to it that the suite accepts a store with a cache in which nothing is wrong.
func TestSoundCache(t *testing.T) {
	Run(t, newReference(caching(cacheFault{})), nil)
}
