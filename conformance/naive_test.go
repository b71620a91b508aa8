package conformance

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// naive is the sliding-window log by its definition: a list of all admissions, filtered and summed
// for every question. It shares nothing with package algorithm, whose log must decide alike.
type naive struct {
	limit      driver.Limit
	resolution time.Duration
	hasty      bool // a planted fault: it takes the rounding of a stamp for a step of the clock
}

// naiveLog makes naive logs as slidingLog makes fast ones.
func naiveLog(parts time.Duration) func(driver.Limit) driver.Algorithm {
	return func(limit driver.Limit) driver.Algorithm {
		resolution := time.Microsecond
		if parts > 1 {
			resolution = (limit.Window / parts).Truncate(time.Microsecond)
		}
		return naive{limit: limit, resolution: resolution}
	}
}

func (naive) Name() string            { return "naive" }
func (a naive) Limit() driver.Limit   { return a.limit }
func (a naive) Validate() error       { return a.limit.Validate() }
func (a naive) Script() driver.Script { return driver.Script{} }

// naiveState is the state of naive, in JSON.
type naiveState struct {
	// the newest stamp is less than this and a microsecond ahead of the clock that wrote it
	Slop   int64
	Window int64 // of the last admission
	Log    []naiveRecord
}

type naiveRecord struct{ Stamp, Units int64 }

// live returns what is later than edge, and its sum.
func (s *naiveState) live(edge int64) (log []naiveRecord, sum int64) {
	for _, r := range s.Log {
		if r.Stamp > edge {
			log = append(log, r)
			sum += r.Units
		}
	}
	return log, sum
}

func (s *naiveState) newest() int64 { return s.Log[len(s.Log)-1].Stamp }

// earliest returns the earliest time at which the newest record may have been written.
func (s *naiveState) earliest() int64 {
	if len(s.Log) == 0 {
		return 0
	}
	return s.newest() - s.Slop
}

func (a naive) Step(
	state []byte, now int64, d driver.Demand,
) ([]byte, time.Duration, driver.Result) {
	res := driver.Result{Allowed: true, Limit: a.limit, Remaining: a.limit.Max, At: now}
	if d.Op == driver.OpReset {
		return nil, time.Duration(len(state)), res
	}
	var s naiveState
	if len(state) > 0 && (json.Unmarshal(state, &s) != nil || len(s.Log) == 0 || s.Window < 1) {
		return nil, -1, driver.Result{}
	}
	window, write := a.limit.Window.Microseconds(), false
	if len(s.Log) > 0 && now >= s.newest()+s.Window {
		s = naiveState{}
	}
	by := s.earliest() - now
	if a.hasty && len(s.Log) > 0 {
		by = s.newest() - now
	}
	if by > window {
		for i := range s.Log {
			s.Log[i].Stamp -= by
		}
		write = true
	}
	res.At = max(now, s.earliest())
	edge := res.At - window
	log, used := s.live(edge)

	switch {
	case d.Op == driver.OpForce, d.Op == driver.OpTake && used+d.N <= a.limit.Max:
		a.admit(&s, res.At, d.N)
		res.At, write = s.newest(), true
	case d.Op == driver.OpGiveBack:
		i := slices.IndexFunc(s.Log,
			func(r naiveRecord) bool { return r.Stamp == d.At && r.Stamp > edge && r.Units > 0 })
		if i >= 0 {
			s.Log[i].Units -= min(d.N, s.Log[i].Units)
			write = true
		}
	case used+d.N > a.limit.Max:
		res.Allowed = false
		left := used
		for _, r := range log {
			if left -= r.Units; left+d.N <= a.limit.Max {
				res.RetryAfter = time.Duration(min(r.Stamp+window,
					s.newest()+s.Window)-now) * time.Microsecond
				break
			}
		}
	}
	if _, used = s.live(edge); used > 0 {
		res.ResetAfter = time.Duration(s.newest()+min(window, s.Window)-now) * time.Microsecond
	}
	res.Remaining = max(0, a.limit.Max-used)
	if !write {
		return state, 0, res
	}
	next, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return next, time.Duration(s.newest()+s.Window-now) * time.Microsecond, res
}

// admit records n units at t.
func (a naive) admit(s *naiveState, t, n int64) {
	r := a.resolution.Microseconds()
	stamp, slop := (t+r-1)/r*r, int64(0)
	for slop < r-1 {
		slop = 2*slop + 1
	}
	if len(s.Log) > 0 && s.newest() >= stamp {
		stamp, slop = s.newest(), max(slop, s.Slop)
	}
	s.Slop, s.Window = slop, a.limit.Window.Microseconds()
	s.Log, _ = s.live(stamp - slop - s.Window)
	if len(s.Log) > 0 && s.newest() == stamp {
		s.Log[len(s.Log)-1].Units += n
	} else {
		s.Log = append(s.Log, naiveRecord{stamp, n})
	}
}
