package algorithm

import "sort"

// expire returns the first record after edge, and the units of the records from there on. The
// units are negative in a corrupt state.
func (g *logState) expire(edge int64) (first int, used int64) {
	stamp := edge - g.base
	slot, slots, used := g.head, g.slots, g.used
	for ; first < g.count; first++ {
		r := g.at(slot)
		if r.stamp() > stamp {
			break
		}
		if first == copies && slots > 0 { // there may be many more: use the index
			at, passed := g.seek(first, edge, max53)
			return at, used - passed
		}
		used -= r.units()
		if slot++; slot == slots {
			slot = 0
		}
	}
	return first, used
}

// seek advances from record i while the stamp is at most edge and the units that it passes are
// fewer than need. It returns the record where it stops, and the units.
func (g *logState) seek(i int, edge, need int64) (stop int, passed int64) {
	edge -= g.base
	for ; i < g.count; i++ {
		if slot := g.slot(i); g.slots > 0 && slot%block == 0 {
			for i+block < g.count && g.record(i+block).stamp() <= edge {
				units := g.entry(g.slot(i)).units()
				if passed+units >= need {
					break
				}
				i, passed = i+block, passed+units
			}
		}
		r := g.record(i)
		units := r.units()
		if r.stamp() > edge || passed+units >= need {
			break
		}
		passed += units
	}
	return i, passed
}

// wait returns how long it takes until need units, more than 0, have expired. edge is the edge of
// the window now, and first the first record after it. A negative result means that the state is
// corrupt: it has fewer units, or its stamps do not ascend.
func (g *logState) wait(first int, need, edge, window, now int64) int64 {
	if first == g.count {
		return -1
	}
	last := g.record(first)
	if last.units() < need {
		i, _ := g.seek(first, g.newest, need)
		if i == g.count {
			return -1
		}
		last = g.record(i)
	}
	stamp := g.base + last.stamp()
	if stamp <= edge {
		return -1
	}
	return min(stamp+window, g.newest+g.window) - now
}

// find returns the first record, from first on, with this stamp or a later one, or count if there
// is none.
func (g *logState) find(first int, stamp int64) int {
	stamp -= g.base
	return first + sort.Search(g.count-first, func(i int) bool {
		return g.record(first+i).stamp() >= stamp
	})
}
