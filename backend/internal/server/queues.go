package server

import (
	"cmp"
	"context"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/truewindow/ratelimit/backend/internal/batch"
	"github.com/truewindow/ratelimit/backend/internal/keyspace"
	"github.com/truewindow/ratelimit/backend/serverstore"
)

// queues finds the queue for a demand. On one server there is one queue. On a cluster there is one
// for each server, so that a server that does not answer delays only its own demands. If the client
// does not report which server has a key, there is one for each slot; otherwise a slot has its own
// only while it moves.
type queues struct {
	executor *executor
	shared   batch.Shared
	single   bool         // whether each demand is sent by itself
	all      *batch.Queue // of one server

	bySlot   *[keyspace.NumSlots]atomic.Pointer[batch.Queue]
	byServer atomic.Pointer[map[string]*batch.Queue] // a map that does not change
	replace  sync.Mutex                              // held while byServer is replaced
}

// maxServers bounds byServer. When it is full, ofServer starts an empty map, which drops the queues
// of servers that have left the cluster.
const maxServers = 1024

// open makes q ready for demands.
func (q *queues) open(e *executor, opts serverstore.Options) {
	q.executor = e
	q.shared.Timeout = cmp.Or(opts.Timeout, DefaultTimeout)
	q.shared.Linger = opts.Linger
	q.single = opts.NoBatching
	if !e.cluster {
		q.all = q.newQueue()
		return
	}
	q.bySlot = new([keyspace.NumSlots]atomic.Pointer[batch.Queue])
	q.byServer.Store(new(map[string]*batch.Queue))
}

func (q *queues) newQueue() *batch.Queue {
	return &batch.Queue{
		Execute:   q.executor.execute,
		OnTimeout: func() { q.executor.client.Lost(context.DeadlineExceeded) },
		Shared:    &q.shared,
		Single:    q.single,
	}
}

// queue returns the queue for demands with this stored key.
func (q *queues) queue(key string) *batch.Queue {
	if q.all != nil {
		return q.all
	}
	slot := keyspace.Slot(key)
	if q.executor.router != nil && !q.executor.moving.moves(slot) {
		return q.ofServer(q.executor.router.Owner(key))
	}
	own := &q.bySlot[slot]
	if queue := own.Load(); queue != nil {
		return queue
	}
	own.CompareAndSwap(nil, q.newQueue())
	return own.Load()
}

// ofServer returns the queue of a server.
func (q *queues) ofServer(name string) *batch.Queue {
	if queue := (*q.byServer.Load())[name]; queue != nil {
		return queue
	}
	q.replace.Lock()
	defer q.replace.Unlock()
	servers := maps.Clone(*q.byServer.Load())
	if queue := servers[name]; queue != nil {
		return queue
	}
	if servers == nil || len(servers) == maxServers {
		servers = make(map[string]*batch.Queue)
	}
	servers[name] = q.newQueue()
	q.byServer.Store(&servers)
	return servers[name]
}
