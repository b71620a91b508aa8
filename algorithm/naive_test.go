package algorithm

import (
	"math/bits"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// naive is the sliding-window log in its simplest form: a slice that is filtered and summed again
// for every step. It is the model for tests of Step.
type naive struct {
	records []record
	slop    int64 // the newest stamp is at most this far ahead of the clock that wrote it
	window  int64 // of the last admission
}

type record struct{ stamp, units int64 }

func (m *naive) newest() int64 { return m.records[len(m.records)-1].stamp }

// earliest returns the earliest time at which the newest record may have been written.
func (m *naive) earliest() int64 {
	if len(m.records) == 0 {
		return 0
	}
	return m.newest() - m.slop
}

func since(records []record, edge int64) (live []record) {
	for _, r := range records {
		if r.stamp > edge {
			live = append(live, r)
		}
	}
	return live
}

func sum(records []record) (units int64) {
	for _, r := range records {
		units += r.units
	}
	return units
}

func (m *naive) step(l Log, now int64, d driver.Demand) (driver.Result, time.Duration) {
	limit, window := l.Limit().Max, l.Limit().Window.Microseconds()
	res := driver.Result{Allowed: true, Limit: l.Limit(), Remaining: limit}
	if d.Op == driver.OpReset {
		*m = naive{}
		return res, 0
	}
	if by := m.earliest() - now; by > window {
		for i := range m.records {
			m.records[i].stamp -= by
		}
	}
	kept := *m
	if len(m.records) > 0 && now >= m.newest()+m.window {
		*m = naive{}
	}
	t := max(now, m.earliest())
	live := since(m.records, t-window)
	joined := m.join(t-window, d)
	switch {
	case joined:
	case d.Op == driver.OpForce || d.Op == driver.OpTake && sum(live)+d.N <= limit:
		r := l.Resolution().Microseconds()
		stamp := (t + r - 1) / r * r
		slop := int64(1)<<bits.Len64(uint64(r-1)) - 1
		if len(m.records) > 0 && m.newest() >= stamp {
			stamp = m.newest()
			slop = max(slop, m.slop)
		}
		m.slop, m.window = slop, window
		m.records = since(m.records, stamp-slop-window)
		m.records = append(m.records, record{stamp, min(d.N, max48-sum(m.records))})
		if n := len(m.records); n > 1 && m.records[n-2].stamp == stamp {
			m.records[n-2].units += m.records[n-1].units
			m.records = m.records[:n-1]
		}
	case sum(live)+d.N > limit:
		res.Allowed = false
		left := sum(live)
		for _, r := range live {
			if left -= r.units; left+d.N <= limit {
				res.RetryAfter = time.Duration(min(r.stamp+window, m.newest()+m.window)-
					now) * time.Microsecond
				break
			}
		}
	}
	used := sum(since(m.records, t-window))
	res.Remaining = max(0, limit-used)
	if used > 0 {
		res.ResetAfter = time.Duration(m.newest()+min(window, m.window)-now) * time.Microsecond
	}
	var keep time.Duration
	if len(m.records) > 0 {
		keep = time.Duration(m.newest()+m.window-now) * time.Microsecond
	}
	if !res.Allowed || d.Op == driver.OpPeek || joined {
		*m = kept // expired records do not count, but only a new record removes them
	}
	return res, keep
}

// join adds the units of an OpForce with an At to the first record after edge that has this stamp
// or a later one, and reports whether there is one.
func (m *naive) join(edge int64, d driver.Demand) bool {
	if d.Op != driver.OpForce || d.At <= 0 {
		return false
	}
	for i, r := range m.records {
		if r.stamp > edge && r.stamp >= d.At {
			m.records[i].units += min(d.N, max48-sum(m.records))
			return true
		}
	}
	return false
}
