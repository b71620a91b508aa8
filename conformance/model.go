package conformance

import (
	"bytes"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// identity is what a state belongs to.
type identity struct{ key, limit, algorithm string }

func identityOf(d driver.Demand) identity {
	return identity{d.Key, d.Algorithm.Limit().Name, d.Algorithm.Name()}
}

// model is a store that keeps the contract, for one goroutine and without errors. It never forgets
// a state, but records when a store may.
type model struct {
	now    int64
	states map[identity]kept
}

type kept struct {
	state []byte
	until int64
	over  bool // the clock has reached until: a store may have forgotten the state
}

// write is what a step returned to be written.
type write struct {
	id   identity
	next []byte
	keep time.Duration
}

func newModel(now int64) *model {
	return &model{now: now, states: make(map[identity]kept)}
}

func (m *model) set(now int64) {
	m.now = now
	for id, k := range m.states {
		if !k.over && now >= k.until {
			k.over = true
			m.states[id] = k
		}
	}
}

// doubtful reports whether a store may or may not still have the state of d: it had run out, and
// the clock has stepped back since.
func (m *model) doubtful(d driver.Demand) bool {
	k := m.states[identityOf(d)]
	return k.over && m.now < k.until
}

// over reports whether a store may have forgotten the state of d.
func (m *model) over(d driver.Demand) bool { return m.states[identityOf(d)].over }

// decide returns the results of ds as one, and what has to be written then.
func (m *model) decide(ds []driver.Demand) (results []driver.Result, writes []write) {
	results = make([]driver.Result, len(ds))
	if len(ds) > 1 {
		for i, d := range ds {
			var w write
			if w, results[i] = m.run(d, d.Peek); w.keep != 0 {
				writes = append(writes, w)
			}
		}
		if !allowed(results) {
			return results, writes
		}
		writes, ds = nil, driver.Grant(ds, results)
	}
	for i, d := range ds {
		var w write
		if w, results[i] = m.run(d, d.Step); w.keep != 0 {
			writes = append(writes, w)
		}
	}
	return results, writes
}

func (m *model) run(
	d driver.Demand, step func([]byte, int64) ([]byte, time.Duration, driver.Result),
) (write, driver.Result) {
	id := identityOf(d)
	next, keep, res := step(bytes.Clone(m.states[id].state), m.now)
	return write{id, next, keep}, res
}

// brief reports whether the keep of one of writes is so short that a server, whose keys expire in
// real time, may forget the state while the case is still running.
func brief(writes []write) bool {
	for _, w := range writes {
		if len(w.next) > 0 && w.keep < watchdog {
			return true
		}
	}
	return false
}

func (m *model) commit(writes []write) {
	for _, w := range writes {
		if len(w.next) == 0 {
			delete(m.states, w.id)
			continue
		}
		m.states[w.id] = kept{state: bytes.Clone(w.next), until: m.now + w.keep.Microseconds()}
	}
}
