package breaker

// Failing reports whether calls go through the breaker, with a lock, after a failure.
func (s *Store) Failing() bool { return s.failing() }
