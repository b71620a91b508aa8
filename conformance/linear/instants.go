package linear

import (
	"slices"
	"time"

	"github.com/truewindow/ratelimit/conformance"
	"github.com/truewindow/ratelimit/driver"
)

// name records the instants that results name: readings of the clock, and when what an operation
// sees leaves a window or times out.
func (s *search) name() {
	for _, op := range s.ops {
		if op.unknown() {
			continue
		}
		for i, res := range op.Results {
			named := append(s.named[op.states[i]], op.Now)
			for _, w := range s.windows {
				named = append(named, op.Now-w, op.Now-w+1)
				for _, wait := range []time.Duration{res.ResetAfter, res.RetryAfter} {
					if wait > 0 {
						named = append(named, op.Now+wait.Microseconds()-w)
					}
				}
			}
			s.named[op.states[i]] = named
		}
	}
	for i := range s.named {
		slices.Sort(s.named[i])
		s.named[i] = slices.Compact(s.named[i])
	}
}

// between returns the instants to try for an operation of unknown outcome on some states. On a
// Steady clock they lie between from, which is 0 if nothing is known, and until.
func (s *search) between(states []int, from, until int64) (instants []int64) {
	var named []int64
	for _, n := range states {
		all := s.named[n]
		if s.clock == Steady {
			first, _ := slices.BinarySearch(all, from)
			end, _ := slices.BinarySearch(all, until)
			all = all[min(first, end):end]
		}
		named = append(named, all...)
	}
	if s.clock == Steady {
		if from == 0 {
			from = slices.Min(append(named, until)) - 1
		}
		named = append(named, from, until)
	}
	slices.Sort(named)
	named = slices.Compact(named)
	for i, t := range named {
		instants = append(instants, t)
		if i+1 < len(named) && named[i+1] > t+1 && (s.thorough || t == from) {
			instants = append(instants, t+1)
		}
	}
	return instants
}

// effective reports whether an operation of unknown outcome may change a state.
func (s *search) effective(op conformance.Operation) bool {
	return s.clock != Steady || slices.ContainsFunc(op.Demands,
		func(d driver.Demand) bool { return d.Op != driver.OpPeek })
}
