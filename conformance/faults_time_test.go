package conformance

import (
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// clocks returns a bug that changes what the clock says.
func clocks(change func(now int64) int64) bugs {
	return bugs{clock: func(_ *reference, now int64) int64 { return change(now) }}
}

var clockFaults = []fault{
	{name: "clock in milliseconds",
		rules: "clock/microseconds clock/epoch result/retry-after step/results",
		bugs:  clocks(func(now int64) int64 { return now - now%1000 })},
	{name: "clock since the start of the process", rules: "clock/epoch clock/range",
		bugs: clocks(func(now int64) int64 { return now % 1e12 })},
	{name: "resolution used for now", rules: "clock/microseconds window/rolling step/results",
		bugs: bugs{demand: func(
			_ *reference, d driver.Demand, now int64,
		) (driver.Demand, int64) {
			if a, ok := unwrap(d.Algorithm).(interface{ Resolution() time.Duration }); ok {
				r := a.Resolution().Microseconds()
				now = (now + r - 1) / r * r
			}
			return d, now
		}}},
	{name: "clock of the client", rules: "clock/shared step/two-clients",
		bugs: bugs{second: func(r *reference) driver.Store {
			return &reference{r.shared,
				func() int64 { return r.clock() - time.Second.Microseconds() }, r.bugs}
		}}},
	{name: "clock stops in the year 2096", rules: "clock/range",
		bugs: clocks(func(now int64) int64 { return min(now, 4_000_000_000_000_000) })},
	{name: "clock never steps back",
		rules: "clock/back-within-window clock/back-beyond-window step/results",
		bugs: bugs{clock: func(r *reference, now int64) int64 {
			r.last = max(r.last, now)
			return r.last
		}}},
	{name: "clock steps forward by a minute at most", rules: "clock/forward step/results",
		bugs: bugs{clock: func(r *reference, now int64) int64 {
			if r.last > 0 {
				now = min(now, r.last+60e6)
			}
			r.last = now
			return now
		}}},
	{name: "rounding of a stamp taken for a step back", rules: "clock/back-up-to-window",
		bugs: asks(func(d *driver.Demand) {
			if naive, ok := naiveOf(d.Algorithm); ok {
				naive.Hasty = true
				d.Algorithm = naive
			}
		})},
	{name: "shift of stamps not written", rules: "clock/back-beyond-window",
		bugs: bugs{stepped: func(_ *reference, d driver.Demand, _ []byte, s *step) {
			if d.Op == driver.OpPeek || !s.res.Allowed {
				s.keep = 0
			}
		}}},
	{name: "time to live too short",
		rules: "expiry/not-early expiry/real-time expiry/real-window-grows",
		bugs: bugs{until: func(_ cell, now int64, keep time.Duration) int64 {
			return now + keep.Microseconds()/2
		}}},
	{name: "time to live in whole milliseconds", rules: "expiry/not-early",
		bugs: bugs{until: func(_ cell, now int64, keep time.Duration) int64 {
			return now + keep.Milliseconds()*1000 - now%1000
		}}},
	{name: "time to live not renewed",
		rules: "expiry/not-early expiry/window-grows expiry/real-window-grows expiry/real-time",
		bugs: bugs{until: func(old cell, now int64, keep time.Duration) int64 {
			if len(old.state) > 0 {
				return old.until
			}
			return now + keep.Microseconds()
		}}},
}
