package conformance

import (
	"context"
	"runtime"

	"github.com/truewindow/ratelimit/driver"
)

// parts returns a bug in demands with a Least.
func parts(change func(*driver.Demand)) bugs {
	return asks(func(d *driver.Demand) {
		if d.Least > 0 {
			change(d)
		}
	})
}

// partUnlocked finds what is free, and takes it a little later.
var partUnlocked = bugs{take: func(r *reference, _ context.Context, d driver.Demand) step {
	if d.Least == 0 {
		return r.one(d)
	}
	r.mu.Lock()
	s := r.run(d, r.now(), driver.Demand.Step)
	r.mu.Unlock()
	runtime.Gosched()
	if s.res.Allowed {
		d.Op, d.N, d.Least = driver.OpForce, s.res.Units, 0
		s = r.one(d)
	}
	return s
}}

// partRetry says when all units fit.
var partRetry = bugs{take: func(r *reference, _ context.Context, d driver.Demand) step {
	s := r.one(d)
	if d.Least > 0 && s.err == nil && !s.res.Allowed {
		d.Op, d.N, d.Least = driver.OpPeek, min(d.N, d.Algorithm.Limit().Max), 0
		s.res.RetryAfter = r.one(d).res.RetryAfter
	}
	return s
}}

// partsApart gives each demand of a TakeAll a part of its own.
var partsApart = rewrites(func(r *reference, ds []driver.Demand, out []driver.Result) error {
	err := r.several(ds, out)
	if err != nil || !allowed(out) {
		return err
	}
	for i, d := range ds {
		if d.Least > out[i].Units || d.Least == 0 || d.N == out[i].Units {
			continue
		}
		d.N, d.Least = d.N-out[i].Units, 1
		if s := r.one(d); s.res.Allowed {
			out[i].Units += s.res.Units
		}
	}
	return nil
})

var leastFaults = []fault{
	{name: "all or nothing", always: true,
		rules: "least/part least/retry-after least/hold takeall/least",
		bugs: parts(func(d *driver.Demand) {
			d.N, d.Least = min(d.N, d.Algorithm.Limit().Max), 0
		})},
	{name: "a part is the least", always: true,
		rules: "least/part least/retry-after least/hold least/repeated",
		bugs:  parts(func(d *driver.Demand) { d.N, d.Least = d.Least, 0 })},
	{name: "a part is one unit at least", always: true, rules: "least/part least/retry-after",
		bugs: parts(func(d *driver.Demand) { d.Least = 1 })},
	{name: "a part is found without a lock", rules: "concurrency/least", bugs: partUnlocked},
	{name: "RetryAfter of all units", always: true, rules: "least/retry-after", bugs: partRetry},
	{name: "parts of their own in a TakeAll", always: true, rules: "takeall/least",
		bugs: partsApart},
}
