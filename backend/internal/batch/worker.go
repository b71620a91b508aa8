package batch

import (
	"context"
	"slices"
	"time"
)

const (
	maxRequests = 512 // that a worker takes from the queue at once, for one batch or several
	maxGroups   = 64  // of a batch: the server does nothing else meanwhile

	// EVALSHA has three words, and for each demand up to three more: the keys of its state and of
	// its holds, and what it asks. ElastiCache Serverless refuses a command of more than 3,999.
	maxArguments = 3999
	maxDemands   = (maxArguments - 3) / 3 // of a batch, unless one group has more
)

// worker sends one batch after the other.
type worker struct {
	// Only the goroutine of the worker uses these.
	groups []Group
	last   map[string]int // by stored key: index of the last group with that key

	// The mutex of the queue guards these.
	requests  []*request
	started   int64         // tick at which the batch began
	index     int           // in the workers of the queue, or -1
	abandoned bool          // its batch has taken longer than the timeout
	done      chan struct{} // closed when abandoned
}

func newWorker() *worker {
	return &worker{last: make(map[string]int), index: -1, done: make(chan struct{})}
}

// forget drops the requests that w had.
func (w *worker) forget() {
	clear(w.requests)
	w.requests = w.requests[:0]
}

// group makes groups of the requests that have not been abandoned. Those on one key keep their
// order; equal Takes of it with no other request on it between them become one group.
func (w *worker) group() {
	for _, r := range w.requests {
		if r.state.Load() == abandoned {
			continue
		}
		if i, ok := w.last[r.keys[0]]; ok && len(r.demands) == 1 && w.groups[i].merge(r) {
			continue
		}
		i := len(w.groups)
		w.groups = slices.Grow(w.groups, 1)[:i+1]
		w.groups[i].set(r)
		for _, key := range r.keys {
			w.last[key] = i
		}
	}
}

// fitting returns how many of the first groups fit into a batch, at least 1.
func fitting(groups []Group) int {
	demands := 0
	for i := range min(len(groups), maxGroups) {
		if demands += groups[i].size(); demands > maxDemands && i > 0 {
			return i
		}
	}
	return min(len(groups), maxGroups)
}

// clear drops the groups and keeps their arrays.
func (w *worker) clear() {
	for i := range w.groups {
		w.groups[i].clear()
	}
	w.groups = w.groups[:0]
	clear(w.last)
}

// begin marks groups as sent in a new batch, moves those that still have requests to the front, and
// returns them.
func begin(groups []Group) (*batch, []Group) {
	b, n := new(batch), 0
	// so that no request is the last to be abandoned before all are counted
	b.waiting.Store(maxRequests)
	waiting := 0
	for i := range groups {
		if groups[i].markSent(b) {
			waiting += len(groups[i].requests)
			groups[n], groups[i] = groups[i], groups[n] // their arrays are used again
			n++
		}
	}
	if b.waiting.Add(int32(waiting)-maxRequests) == 0 {
		b.gate.Abandon()
	}
	return b, groups[:n]
}

// batchContext is the context of a batch. It has a deadline and no timer: it ends when the worker
// is abandoned. Then the client gives up what it has not begun to send, so at most one batch for
// each connection waits for a server that does not answer.
type batchContext struct {
	context.Context
	deadline  time.Time
	abandoned <-chan struct{}
}

func (c batchContext) Deadline() (time.Time, bool) { return c.deadline, true }
func (c batchContext) Done() <-chan struct{}       { return c.abandoned }

func (c batchContext) Err() error {
	select {
	case <-c.abandoned:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// guard runs execute and returns what it panicked with.
func guard(execute func()) (panicked any) {
	done := false
	defer func() {
		if !done {
			panicked = recover()
		}
	}()
	execute()
	done = true
	return nil
}
