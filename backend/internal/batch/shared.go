package batch

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// MaxQueued bounds the places for requests that queues with one Shared have reserved.
	MaxQueued = 1 << 16

	// MaxAbandoned bounds the abandoned batches of queues with one Shared. At this number, a queue
	// that has one of them refuses requests.
	MaxAbandoned = 4096
)

// Shared is what the queues of one store have in common: the times, bounds, and a ticker. Timeout
// and Linger are set before the first use.
type Shared struct {
	// Timeout bounds how long a caller waits. A batch that takes longer is abandoned: it no longer
	// counts as in flight, so that another can begin.
	Timeout time.Duration
	// Linger is how long a batch that is not full waits for more requests. It is at most half of
	// Timeout, and a request waits at most half of the time that its context leaves.
	Linger time.Duration

	queued    atomic.Int64 // places for requests that queues have reserved
	abandoned atomic.Int64 // batches that take longer than Timeout
	refused   atomic.Int64 // requests that met one of the bounds

	requests sync.Pool
	workers  sync.Pool // that have ended and were not abandoned

	ticker
}

// Queued returns the number of places that queues have reserved for requests that are not sent yet.
// At least half are in use.
func (s *Shared) Queued() int {
	// A request that finds no room is counted for a moment.
	return int(min(s.queued.Load(), MaxQueued))
}

// Abandoned returns the number of batches that the client has not ended within the timeout.
func (s *Shared) Abandoned() int { return int(s.abandoned.Load()) }

// Refused returns how many requests met one of the bounds.
func (s *Shared) Refused() int64 { return s.refused.Load() }

func (s *Shared) newRequest() *request {
	if r, ok := s.requests.Get().(*request); ok {
		return r
	}
	return &request{done: make(chan struct{}, 1)}
}

// release takes back a request that nothing else refers to.
func (s *Shared) release(r *request) {
	r.clear()
	s.requests.Put(r)
}

func (s *Shared) newWorker() *worker {
	if w, ok := s.workers.Get().(*worker); ok {
		return w
	}
	return newWorker()
}

// watch calls q at each tick until it has nothing to wait for.
func (s *Shared) watch(q ticked) { s.ticker.watch(max(s.Timeout/ticksPerTimeout, 1), q) }
