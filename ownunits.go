package ratelimit

import (
	"slices"
	"sync"

	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/longkey"
)

// ownUnits are what a reservation holds, as the queues of its limiters count it: not more than what
// it holds in the store, unless a hold has timed out or was reset. Nil has none. It has a lock of
// its own, since it outlives a reservation that is dropped.
type ownUnits struct {
	mu    sync.Mutex
	parts []ownPart
}

type ownPart struct {
	queues *waitQueues
	key    string
	n      int64
}

// held counts what c holds. It is after c was admitted.
func (o *ownUnits) held(c *call) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range c.parts {
		p := &c.parts[i]
		if p.op == driver.OpHold && p.limiter.holds && p.results[0].Source == SourceStore {
			own := ownPart{p.limiter.waiting, longkey.Shorten(p.key), p.granted()}
			own.queues.hold(own.key, own.n, p.limiter.maxHeld())
			o.parts = append(o.parts, own)
		}
	}
}

// leave counts the units of key no more, or those of all keys if queues is nil.
func (o *ownUnits) leave(queues *waitQueues, key string) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.parts = slices.DeleteFunc(o.parts, func(p ownPart) bool {
		leaves := queues == nil || p.queues == queues && p.key == key
		if leaves {
			p.queues.unhold(p.key, p.n)
		}
		return leaves
	})
}
