package conformance

import (
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

// leads returns a bug in takes ahead, which changes the lead of logs.
func leads(change func(lead time.Duration) time.Duration) bugs {
	return asks(func(d *driver.Demand) {
		a, ok := d.Algorithm.(driver.Ahead)
		if !ok || a.Ahead(0) == driver.Algorithm(a) {
			return
		}
		w := a.Limit().Window
		for _, lead := range []time.Duration{w / 50, w / 8} {
			lead = lead.Truncate(time.Microsecond)
			if a.Ahead(lead) == driver.Algorithm(a) {
				d.Algorithm = a.Ahead(change(lead))
			}
		}
	})
}

// unled is a log whose takes ahead are plain ones.
type unled struct{ algorithm.Log }

func (a unled) Ahead(time.Duration) driver.Algorithm { return a }

var aheadFaults = []fault{
	{name: "takes ahead as plain takes", always: true, rules: "ahead/never-above step/results",
		bugs: leads(func(time.Duration) time.Duration { return 0 })},
	{name: "half of the lead", always: true, rules: "ahead/never-above",
		bugs: leads(func(lead time.Duration) time.Duration { return lead / 2 })},
	{name: "an algorithm without a lead", always: true, rules: "ahead/never-above",
		algorithms: []func(driver.Limit) driver.Algorithm{
			func(l driver.Limit) driver.Algorithm { return unled{algorithm.SlidingLog(l)} }}},
}
