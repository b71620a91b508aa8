package algorithm

import (
	"math/rand/v2"
	"testing"
)

// holdIDs are ways to choose IDs.
var holdIDs = map[string]func(i uint64) uint64{
	"random":    func(i uint64) uint64 { return rand.NewPCG(i, 7).Uint64() | 1 },
	"ascending": func(i uint64) uint64 { return i },
	"high bits": func(i uint64) uint64 { return i << 44 },
	"strided":   func(i uint64) uint64 { return i * 4096 },
}

// TestHoldTable compares tables that are filled and emptied with a map.
func TestHoldTable(t *testing.T) {
	for name, id := range holdIDs {
		t.Run(name, func(t *testing.T) {
			for _, slots := range []int{4, 8, 64, 1024} {
				table := make(holdTable, slots*entrySize)
				want := make(map[uint64]hold)
				r := rand.New(rand.NewPCG(uint64(slots), 3))
				for range 50 * slots {
					h := hold{id(1 + r.Uint64N(2*uint64(slots))), r.Int64(), r.Int64(), r.Int64()}
					at, found, ok := table.find(h.id)
					before, there := want[h.id]
					if !ok || found != there || found && table.get(at) != before {
						t.Fatalf("%d slots: found %v at %d, want %+v", slots, found, at, before)
					}
					switch {
					case found && r.IntN(2) == 0:
						table.remove(at)
						delete(want, h.id)
					case found || len(want) < mostEntries(slots):
						table.put(at, h)
						want[h.id] = h
					}
				}
				used := 0
				for i := range slots {
					if table.id(i) != 0 {
						used++
					}
				}
				if used != len(want) {
					t.Errorf("%d of %d slots are in use, want %d", used, slots, len(want))
				}
			}
		})
	}
}

// TestHoldsAreNear: a hold is found near the slot that its ID is hashed to, on average within the
// length of a few cache lines, also when the table is as full as it gets.
func TestHoldsAreNear(t *testing.T) {
	const slots, most = 1 << 16, 8
	for name, id := range holdIDs {
		table, sum := make(holdTable, slots*entrySize), 0
		for i := range mostEntries(slots) {
			at, _, _ := table.find(id(uint64(i + 1)))
			table.put(at, hold{id: id(uint64(i + 1))})
		}
		used := 0
		for i := range slots {
			if table.id(i) != 0 {
				used++
				sum += (i - table.home(table.id(i))) & (slots - 1)
			}
		}
		if used != mostEntries(slots) || sum > most*used {
			t.Errorf("%s: %d holds are %d slots away from home in all, want at most %d each",
				name, used, sum, most)
		}
	}
}
