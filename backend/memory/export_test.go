package memorystore

// Sweep removes expired states, as the cleaner does.
func (s *Store) Sweep() { s.sweep() }
