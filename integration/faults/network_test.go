package faults

import (
	"testing"
	"time"

	"github.com/truewindow/ratelimit/integration/faultproxy"
)

// networkFaults are the faults of the connections between clients and server. The libraries send
// all decisions with EVALSHA.
var networkFaults = []breakage{
	networkFault(resetBefore, noAnswers,
		faultproxy.Fault{Kind: faultproxy.CutBefore, Holding: "evalsha"}),
	networkFault(answersReset, noAnswers,
		faultproxy.Fault{Kind: faultproxy.CutAfter, Holding: "evalsha"}),
	{
		name: "all connections reset, again and again", gets: anything, network: true,
		during: repeatedly(func(_ testing.TB, s *scene) {
			for _, w := range s.witnesses {
				w.proxy.CutAll()
			}
		}),
	},
	{
		name: "all connections reset, new ones reset at once", gets: noAnswers, network: true,
		begin: func(_ testing.TB, s *scene) {
			for _, w := range s.witnesses {
				w.proxy.Set(faultproxy.Fault{Kind: faultproxy.Refuse})
				w.proxy.CutAll()
			}
		},
		end: heal,
	},
	{
		name: "everything arrives 1 s late", gets: noAnswers, network: true,
		lasts: 1500 * time.Millisecond,
		begin: func(_ testing.TB, s *scene) {
			s.set(faultproxy.Fault{Kind: faultproxy.Delay, Pause: time.Second})
		},
		end: heal,
	},
	networkFault("network frozen, nothing lost",
		noAnswers, faultproxy.Fault{Kind: faultproxy.Freeze}),
	networkFault("half-open: requests lost",
		noAnswers, faultproxy.Fault{Kind: faultproxy.LoseRequests}),
	networkFault("half-open: answers lost",
		noAnswers, faultproxy.Fault{Kind: faultproxy.LoseAnswers}),
	{
		name: "half-open: open connections dead, new ones work", gets: anything, network: true,
		lasts: 2 * time.Second,
		begin: func(_ testing.TB, s *scene) {
			s.set(faultproxy.Fault{Kind: faultproxy.LoseAnswers, Old: true})
		},
		end: heal,
	},
	networkFault("one byte a millisecond",
		noAnswers, faultproxy.Fault{Kind: faultproxy.Drip, Pause: time.Millisecond}),
}

const (
	resetBefore  = "connection reset before the server got the script"
	answersReset = "connection reset after the script ran, answer lost"
)

func networkFault(name string, gets outcomes, f faultproxy.Fault) breakage {
	return breakage{name: name, gets: gets, network: true,
		begin: func(_ testing.TB, s *scene) { s.set(f) }, end: heal}
}

func heal(_ testing.TB, s *scene) { s.set(faultproxy.Fault{}) }

// repeatedly repeats act for as long as a fault lasts.
func repeatedly(act func(testing.TB, *scene)) func(testing.TB, *scene) {
	return func(t testing.TB, s *scene) {
		for start := time.Now(); time.Since(start) < breakageLasts; {
			act(t, s)
			pause(breakageRepeat)
		}
	}
}
