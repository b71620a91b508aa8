package fleet

import (
	"context"
	"sync"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// Syncing is a model of limiters that decide in their process and tell the others in the
// background: each admits as long as what it knew of at the last sync, and what it has admitted
// since, are less than Max. Each process has a Member of one Syncing.
type Syncing struct {
	Every time.Duration

	mu   sync.Mutex
	sums map[int64]int64 // units of all by the sync in which they were told
}

// A Member is a process of a Syncing.
type Member struct {
	s      *Syncing
	server driver.Store // counts the syncs
	limit  driver.Limit

	mu           sync.Mutex
	known, since int64
}

// Member returns a new process, which syncs until stop is called.
func (s *Syncing) Member(server driver.Store, limit driver.Limit) (m *Member, stop func()) {
	m = &Member{s: s, server: server, limit: limit}
	stopped := make(chan struct{})
	go func() {
		for tick := time.NewTicker(s.Every); ; m.sync() {
			select {
			case <-stopped:
				tick.Stop()
				return
			case <-tick.C:
			}
		}
	}()
	return m, func() { close(stopped) }
}

func (m *Member) sync() {
	m.server.(*farStore).reach(context.Background(), func() {
		m.s.mu.Lock()
		defer m.s.mu.Unlock()
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.s.sums == nil {
			m.s.sums = make(map[int64]int64)
		}
		now := time.Now().UnixMicro()
		m.s.sums[now] += m.since
		m.known, m.since = 0, 0
		for at, units := range m.s.sums {
			if at <= now-m.limit.Window.Microseconds() {
				delete(m.s.sums, at)
			} else {
				m.known += units
			}
		}
	})
}

// Take decides one demand.
func (m *Member) Take(_ context.Context, d driver.Demand) (driver.Result, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	res := driver.Result{Limit: m.limit, Source: driver.SourceLocal}
	if res.Allowed = m.known+m.since+d.N <= m.limit.Max; res.Allowed {
		m.since += d.N
		res.Units = d.N
	}
	return res, nil
}

// TakeAll is not modelled.
func (m *Member) TakeAll(context.Context, []driver.Demand, []driver.Result) error {
	return driver.ErrInvalid
}
