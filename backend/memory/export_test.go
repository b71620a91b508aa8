package memorystore

// Sweep is what the cleaner does now and then.
func (s *Store) Sweep() { s.sweep() }
