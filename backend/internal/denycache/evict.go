package denycache

// addEvicting counts e and reports whether there is room for it. If there is none, it evicts
// entries of shard, which is locked, and then of other shards that are not locked.
func (x *index) addEvicting(shard *demandShard, e *entry) bool {
	if x.usage.add(e.size()) {
		return true
	}
	if e.size() > x.usage.maxBytes {
		return false // it would not fit if all others were evicted
	}
	if x.evict(shard, e) {
		return true
	}
	for i := range x.demands {
		other := &x.demands[i]
		if other == shard || !other.mu.TryLock() {
			continue
		}
		added := x.evict(other, e)
		other.mu.Unlock()
		if added {
			return true
		}
	}
	return false
}

// evict removes entries of shard, which is locked, until e can be counted. It reports whether e is.
func (x *index) evict(shard *demandShard, e *entry) bool {
	for _, old := range shard.entries { // in random order, which no caller can choose
		for old != nil {
			next := old.next
			if !old.rechecking {
				x.remove(shard, old)
				if x.usage.add(e.size()) {
					return true
				}
			}
			old = next
		}
	}
	return false
}
