package envoy

import "sync/atomic"

// Stats are counts of a [Service] since it was made.
type Stats struct {
	Calls   int64 // all, over gRPC and as JSON
	OK      int64 // admitted by all limits, or without one
	Over    int64 // refused
	Shadow  int64 // admitted only because of Config.Shadow
	Unknown int64 // admitted because no file has the domain, and no other limit applies

	Invalid  int64 // wrong whatever the limits, such as without a domain, or too long
	Failed   int64 // undecided, such as without a store
	Ended    int64 // undecided because Envoy has given up
	Negative int64 // descriptors with is_negative_hits, which give nothing back
	// Looks are calls with hits_addend 0 under limits of files whose Charge is not ChargeAlways.
	Looks int64
	// NotUTF8 are calls over gRPC with a text that is not UTF-8, which are decided as others.
	NotUTF8 int64
}

type counts struct {
	calls, ok, over, shadow, unknown, invalid, failed, ended, negative, looks, notUTF8 atomic.Int64
}

// Stats returns the counts.
func (s *Service) Stats() Stats {
	c := &s.counts
	return Stats{
		Calls: c.calls.Load(), OK: c.ok.Load(), Over: c.over.Load(),
		Shadow: c.shadow.Load(), Unknown: c.unknown.Load(), Invalid: c.invalid.Load(),
		Failed: c.failed.Load(), Ended: c.ended.Load(), Negative: c.negative.Load(),
		Looks: c.looks.Load(), NotUTF8: c.notUTF8.Load(),
	}
}
