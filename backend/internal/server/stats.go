package server

// Stats are what the stores' packages document as theirs.
type Stats struct {
	Waiting    int
	MaxWaiting int
	Hung       int
	MaxHung    int
	Refused    int64
}

// Stats returns counts that were right one after the other, not all at the same moment.
func (s *Store) Stats() Stats {
	shared := &s.lanes.shared
	return Stats{
		Waiting:    int(min(shared.waiting.Load(), maxQueue)), // who finds no room is counted for a moment
		MaxWaiting: maxQueue,
		Hung:       int(shared.deserted.Load() + s.calls.deserted.Load()),
		MaxHung:    maxDeserted,
		Refused:    shared.refused.Load() + s.calls.refused.Load(),
	}
}
