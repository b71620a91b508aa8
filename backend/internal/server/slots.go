package server

import (
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit/backend/internal/keyspace"
)

// movingFor is how long a slot that was redirected has a queue of its own. In a batch with others
// it would delay them while the client finds its new server.
const movingFor = time.Second

// movingSlots are the slots of a cluster that move from one server to another. The zero value marks
// none.
type movingSlots struct {
	start time.Time
	until *[keyspace.NumSlots]atomic.Int64 // since start
}

func newMovingSlots() movingSlots {
	return movingSlots{start: time.Now(), until: new([keyspace.NumSlots]atomic.Int64)}
}

// mark marks the slot of key as moving.
func (m *movingSlots) mark(key string) {
	if m.until != nil {
		m.until[keyspace.Slot(key)].Store(int64(time.Since(m.start) + movingFor))
	}
}

// moves reports whether a slot was marked lately.
func (m *movingSlots) moves(slot int) bool {
	until := m.until[slot].Load()
	return until > 0 && int64(time.Since(m.start)) <= until
}
