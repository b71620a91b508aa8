package server

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit/backend/internal/batch"
	"github.com/truewindow/ratelimit/backend/internal/keyspace"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
)

// owning is a client of a cluster of two servers that only reports which of them has a key.
type owning struct {
	Client
	Router
}

func (owning) Cluster() bool { return true }

func (owning) Owner(key string) string {
	if keyspace.Slot(key) < keyspace.NumSlots/2 {
		return "first"
	}
	return "second"
}

// TestQueues: on a cluster the demands for one server have one queue, but those for a slot that was
// redirected have their own for a while.
func TestQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New(owning{}, Words{}, serverstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		q := &s.queues
		keyOf := func(first bool, other string) string {
			for i := 0; ; i++ {
				key := fmt.Sprint("key", i)
				slot := keyspace.Slot(key)
				if slot < keyspace.NumSlots/2 == first && slot != keyspace.Slot(other) {
					return key
				}
			}
		}
		a := keyOf(true, "")
		b, c := keyOf(true, a), keyOf(false, a)
		if q.queue(a) != q.queue(b) || q.queue(a) == q.queue(c) {
			t.Errorf("slots of one server share a queue: %t, of two servers: %t",
				q.queue(a) == q.queue(b), q.queue(a) == q.queue(c))
		}
		s.executor.moving.mark(a)
		own := q.queue(a)
		if own == q.queue(b) || own != q.queue(a) || q.queue(b) != q.ofServer("first") {
			t.Error("a slot that was redirected shares a queue")
		}
		time.Sleep(movingFor + time.Nanosecond)
		if q.queue(a) != q.queue(b) {
			t.Error("a slot that was redirected once has a queue of its own for ever")
		}
		for i := range 3 * maxServers {
			q.ofServer(fmt.Sprint(i))
			if n := len(*q.byServer.Load()); n > maxServers {
				t.Fatalf("%d queues of servers, want %d at most", n, maxServers)
			}
		}
	})
}

// TestQueuesSingle: without batching each demand is sent by itself, and on a cluster too a server
// that does not answer does not delay demands for another.
func TestQueuesSingle(t *testing.T) {
	s, err := New(owning{}, Words{}, serverstore.Options{NoBatching: true})
	if err != nil {
		t.Fatal(err)
	}
	queues := make(map[*batch.Queue]bool)
	for i := range 100 {
		q := s.queues.queue(fmt.Sprint("key", i))
		if !q.Single {
			t.Error("a queue sends several demands together")
		}
		queues[q] = true
	}
	if len(queues) != 2 {
		t.Errorf("%d queues for the keys of two servers", len(queues))
	}
}

// TestBySlot: groups of a slot come together, in their order. One on several slots is by itself.
// None is lost.
func TestBySlot(t *testing.T) {
	var groups []batch.Group
	several := 0
	for i := range 64 {
		key := fmt.Sprint("{", i*7%5, "}")
		keys := []string{key}
		if i%16 == 0 {
			keys = append(keys, key+"other", "{other}")
			several++
		}
		ds := []driver.Demand{demandOn(key, 1)}
		groups = append(groups, batch.Group{Keys: keys, Times: i, Demands: ds})
	}
	parts := bySlot(groups)
	if len(parts) != 5+several {
		t.Fatalf("%d parts, want 5 slots and %d", len(parts), several)
	}
	var seen []int
	for _, part := range parts {
		for i, g := range part {
			if g.Keys[0] != part[0].Keys[0] || g.Demands[0].Key != g.Keys[0] ||
				len(g.Keys) > 1 && len(part) > 1 {
				t.Errorf("group %d is with those of %s", g.Times, part[0].Keys[0])
			}
			if i > 0 && part[i-1].Times >= g.Times {
				t.Errorf("group %d comes before %d", part[i-1].Times, g.Times)
			}
			seen = append(seen, g.Times)
		}
	}
	slices.Sort(seen)
	for i := range groups {
		if seen[i] != i {
			t.Fatalf("groups %v", seen)
		}
	}
}
