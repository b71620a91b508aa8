package server

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
)

// owning is a client of a cluster of two servers that only says which of them has a key.
type owning struct {
	Client
	Batcher
}

func (owning) Cluster() bool { return true }

func (owning) Owner(key string) string {
	if Slot(key) < numSlots/2 {
		return "first"
	}
	return "second"
}

// TestLanes: on a cluster the demands for one server have one lane, but those for a slot that was redirected have their own for a while.
func TestLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := New(owning{}, Words{}, ratelimit.FailClosed, Options{})
		if err != nil {
			t.Fatal(err)
		}
		keyOf := func(first bool, other string) string {
			for i := 0; ; i++ {
				key := fmt.Sprint("key", i)
				if Slot(key) < numSlots/2 == first && Slot(key) != Slot(other) {
					return key
				}
			}
		}
		a := keyOf(true, "")
		b, c := keyOf(true, a), keyOf(false, a)
		if s.lane(a) != s.lane(b) || s.lane(a) == s.lane(c) {
			t.Errorf("one server's slots share their lane: %t, two servers': %t", s.lane(a) == s.lane(b), s.lane(a) == s.lane(c))
		}
		s.lanes.setApart(Slot(a))
		if own := s.lane(a); own == s.lane(b) || own != s.lane(a) || s.lane(b) != s.ownerLane("first") {
			t.Error("a slot that was redirected travels with others")
		}
		time.Sleep(apartFor + time.Nanosecond)
		if s.lane(a) != s.lane(b) {
			t.Error("a slot that was redirected once travels alone for ever")
		}
		for i := range 3 * maxOwners {
			s.ownerLane(fmt.Sprint(i))
			if n := len(*s.lanes.owners.Load()); n > maxOwners {
				t.Fatalf("%d lanes of servers, want %d at most", n, maxOwners)
			}
		}
	})
}

// TestBySlot: groups of a slot come together, in their order, and none is lost.
func TestBySlot(t *testing.T) {
	var groups []Group
	for i := range maxGroups {
		key := fmt.Sprint("{", i*7%5, "}")
		groups = append(groups, Group{Keys: []string{key}, Times: i, Demands: []ratelimit.Demand{demandOn(key, ratelimit.Take, 1)}})
	}
	parcels := bySlot(groups)
	if len(parcels) != 5 {
		t.Fatalf("%d slots, want 5", len(parcels))
	}
	var seen []int
	for _, p := range parcels {
		for i, g := range p.groups {
			if Slot(g.Keys[0]) != p.slot || g.Demands[0].Key != g.Keys[0] {
				t.Errorf("group %d is in slot %d", g.Times, p.slot)
			}
			if i > 0 && p.groups[i-1].Times >= g.Times {
				t.Errorf("group %d comes before %d", p.groups[i-1].Times, g.Times)
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

// TestGateOfBatch: each call of a batch knows whether it was sent, and none is sent once all who wait have left.
func TestGateOfBatch(t *testing.T) {
	var all Gate
	one, two := Gate{of: &all}, Gate{of: &all}
	if !one.Open() || !all.Opened() || two.Opened() {
		t.Errorf("one of two is sent: all %t, the other %t", all.Opened(), two.Opened())
	}
	if !one.Shut() || one.Opened() || !all.Opened() {
		t.Error("a call that was refused does not shut what others have opened")
	}
	all.leave()
	if one.Shut() || two.Open() || two.Opened() {
		t.Error("sent though all have left")
	}
}
