package memorystore

import (
	"math/rand/v2"
	"testing"
	"unsafe"
)

// found follows the slots from the home of a hash as find does.
func (t *table) found(hash uint64, id uint32) bool {
	for ; t != nil && len(t.slots) > 0; t = t.old {
		for i := t.home(slot(hash, id)); t.slots[i] != 0; i = t.after(i) {
			if t.slots[i] == slot(hash, id) {
				return true
			}
		}
	}
	return false
}

// TestTable compares the table with a map: with hashes that collide, also around the end of the
// table, and with removals while it grows.
func TestTable(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 7))
		var tab table
		model := map[uint32]uint64{}
		spread, most := uint64(1)<<r.IntN(12), 1+r.IntN(300)
		for i := range 2000 {
			id := r.Uint32N(uint32(2 * most))
			hash, there := model[id]
			switch {
			case there:
				tab.remove(hash, id)
				delete(model, id)
			case len(model) < most:
				hash = -r.Uint64N(spread) // wraps at the end
				if r.IntN(2) == 0 {
					hash = r.Uint64()
				}
				tab.insert(hash, id)
				model[id] = hash
			}
			if there && tab.found(hash, id) {
				t.Fatalf("seed %d: found what was removed", seed)
			}
			if tab.len() != len(model) {
				t.Fatalf("seed %d: length %d, want %d", seed, tab.len(), len(model))
			}
			if i%20 != 0 {
				continue
			}
			for id, hash := range model {
				if !tab.found(hash, id) {
					t.Fatalf("seed %d: lost one of %d", seed, len(model))
				}
			}
		}
	}
}

// TestTableGrowsInSteps fills a table: no insertion moves more than a few slots, the old table is
// empty long before it grows again, and between a fifth and three eighths of the slots are free.
func TestTableGrowsInSteps(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 7))
	var tab table
	growing := 0
	for id := range uint32(100_000) {
		left, size := 0, len(tab.slots)
		if tab.old != nil {
			left = tab.old.used
			growing++
		}
		tab.insert(r.Uint64(), id)
		if tab.old != nil && left > 0 && tab.old.used < left-moveBatch {
			t.Fatalf("at %d, one insertion moved %d slots", id, left-tab.old.used)
		}
		if left > 0 && len(tab.slots) != size {
			t.Fatalf("at %d, the table grew before the old one was empty", id)
		}
		if 5*tab.used > 4*len(tab.slots) {
			t.Fatalf("%d of %d slots in use", tab.used, len(tab.slots))
		}
		if id > 100 && 8*tab.len() < 5*len(tab.slots) {
			t.Fatalf("only %d of %d slots in use", tab.len(), len(tab.slots))
		}
	}
	if growing > 100_000/4 {
		t.Errorf("there was an old table for %d of 100,000 insertions", growing)
	}
}

// TestSizes: an entry is a cache line, a chunk with the allocator's 8 bytes is a page, and a shard
// begins with a cache line that holds its lock, the last algorithm and the table.
func TestSizes(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) != 8 {
		t.Skip("the sizes are those of 64-bit machines")
	}
	if size := unsafe.Sizeof(entry{}); size != 64 || chunkSize*size+8 > 4096 {
		t.Errorf("an entry has %d bytes, a chunk %d", size, chunkSize*size)
	}
	var sh shard
	if size := unsafe.Sizeof(sh); size%128 != 64 ||
		unsafe.Offsetof(sh.table)+unsafe.Sizeof(sh.table.slots) > 64 {
		t.Errorf("a shard has %d bytes, its table is at %d", size, unsafe.Offsetof(sh.table))
	}
	if at := uintptr(unsafe.Pointer(&open(t, nil).shards)); at%64 != 0 {
		t.Errorf("the shards are at %#x", at)
	}
}
