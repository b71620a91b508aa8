package replay

import (
	"testing"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
)

// exactly returns proposals of limits with the exact log.
func exactly(limits ...ratelimit.Limit) (ps []Proposal) {
	for _, l := range limits {
		ps = append(ps, Proposal{"log", algorithm.SlidingLog(l)})
	}
	return ps
}

// replayed decides arrivals that are not read from a log.
func replayed(t testing.TB, proposals []Proposal, arrivals []arrival) (*engine, *Report) {
	t.Helper()
	e := newEngine(proposals)
	e.decide(&block{lines: int64(len(arrivals)), arrivals: arrivals})
	return e, e.report(&Options{})
}
