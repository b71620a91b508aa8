package breaker

// Troubled tells that calls go the long way, with a lock.
func (s *Store) Troubled() bool { return s.troubled() }
