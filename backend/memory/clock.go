package memorystore

import "time"

// now reads the clock: Options.Now, or the wall clock when the store was made plus the time since.
func (s *Store) now() int64 {
	if s.clock != nil {
		return s.clock()
	}
	return (s.epoch + int64(time.Since(s.start))) / int64(time.Microsecond)
}
