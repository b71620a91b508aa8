package server

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// lanes are whom a demand can travel with: those who have the same lane. On one server there is one lane for all. On a cluster a server that is
// slow or away keeps only those who want something of it.
type lanes struct {
	all    *Together
	shared Shared

	// On a cluster.
	slots   *[numSlots]slotLane
	batcher Batcher // or nil
	started time.Time
	owners  atomic.Pointer[map[string]*Together] // replaced, never changed
	adding  sync.Mutex                           // who replaces owners
}

// slotLane is the lane of a slot: where the client has no batches, and while the slot moves.
type slotLane struct {
	lane  atomic.Pointer[Together]
	apart atomic.Int64 // until when the slot has to travel alone, since started
}

const (
	// apartFor is how long a slot that was redirected travels alone. In a batch it would keep the others while the client
	// finds its new server.
	apartFor = time.Second

	// maxOwners is the number of lanes after which those of servers that have gone are forgotten along with the others.
	maxOwners = 1024
)

func (s *Store) newLane(decide func(context.Context, *Gate, []Group) error) *Together {
	return &Together{
		Decide: decide,
		Late:   func() { s.client.Lost(context.DeadlineExceeded) },
		Shared: &s.lanes.shared,
	}
}

func (s *Store) openLanes() {
	l := &s.lanes
	l.shared.Timeout = s.timeout
	l.all = s.newLane(s.decideGroups)
	if s.cluster {
		l.slots, l.started = new([numSlots]slotLane), time.Now()
		l.owners.Store(new(map[string]*Together))
		l.batcher, _ = s.client.(Batcher)
	}
}

// lane returns whom a demand on key can travel with.
func (s *Store) lane(key string) *Together {
	l := &s.lanes
	if l.slots == nil {
		return l.all
	}
	slot := &l.slots[Slot(key)]
	if l.batcher != nil {
		if apart := slot.apart.Load(); apart == 0 || int64(time.Since(l.started)) > apart {
			return s.ownerLane(l.batcher.Owner(key))
		}
	}
	if lane := slot.lane.Load(); lane != nil {
		return lane
	}
	slot.lane.CompareAndSwap(nil, s.newLane(s.decideGroups))
	return slot.lane.Load()
}

func (s *Store) ownerLane(owner string) *Together {
	l := &s.lanes
	if lane := (*l.owners.Load())[owner]; lane != nil {
		return lane
	}
	l.adding.Lock()
	defer l.adding.Unlock()
	owners := *l.owners.Load()
	if lane := owners[owner]; lane != nil {
		return lane
	}
	if len(owners) < maxOwners {
		owners = maps.Clone(owners)
	} else {
		owners = nil
	}
	if owners == nil {
		owners = make(map[string]*Together)
	}
	owners[owner] = s.newLane(s.decideBatch)
	l.owners.Store(&owners)
	return owners[owner]
}

// setApart is for a slot that was redirected.
func (l *lanes) setApart(slot int) {
	l.slots[slot].apart.Store(int64(time.Since(l.started) + apartFor))
}
