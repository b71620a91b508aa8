package layer

// Failing reports whether failures are counted, so that an answer writes.
func (b *Breaker) Failing() bool { return b.phase.Load().failures.Load() > 0 }
