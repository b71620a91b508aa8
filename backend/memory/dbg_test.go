package memorystore
import "testing"
func (w *wheel) check(t *testing.T, sh *shard, what string) {
	for list, h := range w.heads {
		if (h != none) != (w.occupied[list/64]&(1<<(list%64)) != 0) { t.Fatalf("%s: bit of list %d wrong", what, list) }
		prev := uint32(headMark|list)
		for id := h; id != none; id = sh.entry(id).next {
			if sh.entry(id).prev != prev { t.Fatalf("%s: list %d prev broken: id %d %x want %x", what, list, id, sh.entry(id).prev, prev) }
			prev = id
		}
	}
}
