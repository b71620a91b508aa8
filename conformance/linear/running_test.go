package linear

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/conformance"
	"github.com/truewindow/ratelimit/driver"
)

// A server runs demands at instants of its clock, and has bugs.
type server struct {
	states map[identity][]byte
	bug    string
}

func (s *server) take(d driver.Demand, now int64) driver.Result {
	id := identity{d.Key, d.Algorithm.Limit().Name, d.Algorithm.Name()}
	if s.bug == "lost give-back" && d.Op == driver.OpGiveBack {
		peek := d
		peek.Op, peek.N, peek.At = driver.OpPeek, 1, 0
		_, _, res := peek.Step(bytes.Clone(s.states[id]), now)
		res.Allowed, res.RetryAfter = true, 0
		res.Remaining = min(res.Limit.Max, res.Remaining+d.N)
		return res
	}
	next, keep, res := d.Step(bytes.Clone(s.states[id]), now)
	if keep > 0 {
		s.states[id] = next
	}
	return res
}

// run is one demand of a simulated history.
type run struct {
	conformance.Operation
	effect time.Duration // 0: never
	lost   bool          // the answer
	twice  bool
}

// simulate returns a history of random demands by several clients, some of which got no answer, on
// a server whose clock is that of the recording plus steps.
func simulate(
	r *rand.Rand, window time.Duration, steps bool, bug string,
) (history []conformance.Operation) {
	limits := []driver.Algorithm{
		algorithm.SlidingLog(driver.Limit{Name: "a", Max: 5, Window: window}),
		algorithm.SlidingLog(driver.Limit{Name: "a", Max: 7, Window: window}),
		algorithm.SlidingLog(driver.Limit{Name: "b", Max: 8, Window: window}),
	}
	var runs []*run
	for client := range 5 {
		at := time.Duration(r.IntN(1000))
		for range 25 {
			at += time.Duration(1 + r.IntN(4000))
			op := &run{Operation: conformance.Operation{Client: client, Call: at}, effect: at + 1 +
				time.Duration(r.IntN(1500))}
			op.Return = op.effect + 1 + time.Duration(r.IntN(500))
			a := limits[r.IntN(len(limits))]
			keys := [][]string{{"k", "l"}, {"l", "k"}}[r.IntN(2)]
			op.Demands = []driver.Demand{{Key: keys[0], Algorithm: a, N: 1 + r.Int64N(2)}}
			if !steps && r.IntN(12) == 0 {
				op.lost = true
				op.effect += time.Duration(r.IntN(20_000))
				op.twice = bug == "double record"
				if r.IntN(2) == 0 && !op.twice {
					op.effect = 0
				}
			}
			switch r.IntN(10) {
			case 0:
				op.Demands[0].Op = driver.OpPeek
			case 1:
				op.Demands[0].Op = driver.OpForce
			case 2, 3, 4:
				op.Demands[0].Op = driver.OpGiveBack // of what is chosen below
			case 5:
				op.Demands[0].Op = driver.OpReset
			case 6, 7:
				op.Demands = append(op.Demands,
					driver.Demand{Key: keys[1], Algorithm: limits[2], N: 1})
			}
			runs = append(runs, op)
			at = op.Return
		}
	}
	slices.SortFunc(runs, func(a, b *run) int { return int(a.effect - b.effect) })
	s := &server{states: map[identity][]byte{}, bug: bug}
	var stamps []int64
	offset, half := int64(0), runs[len(runs)/2].effect
	for _, op := range runs {
		if op.Demands[0].Op == driver.OpGiveBack && len(stamps) > 0 {
			op.Demands[0].At = stamps[max(0, len(stamps)-1-r.IntN(4))]
		}
		if steps && op.effect > half {
			offset = -window.Microseconds() / 3
			if bug == "unclamped" {
				for id := range s.states {
					s.states[id] = nil
				}
				bug = ""
			}
		}
		if op.effect > 0 {
			op.Results = s.runAll(op.Demands, now+int64(op.effect)+offset)
			if op.twice {
				s.runAll(op.Demands, now+int64(op.effect)+offset+1)
			}
		}
		if op.lost {
			op.Results = nil
		} else if op.Demands[0].Op == driver.OpTake && op.Results[0].Allowed {
			stamps = append(stamps, op.Results[0].At)
		}
		if bug == "recorded though said not to be" && op.lost {
			continue
		}
		history = append(history, op.Operation)
	}
	return history
}

func (s *server) runAll(ds []driver.Demand, now int64) []driver.Result {
	before := make(map[identity][]byte)
	for id, state := range s.states {
		before[id] = bytes.Clone(state)
	}
	var results []driver.Result
	refused := false
	for _, d := range ds {
		res := s.take(d, now)
		results = append(results, res)
		refused = refused || !res.Allowed
	}
	if refused && len(ds) > 1 {
		s.states = before
		for i, d := range ds {
			_, _, results[i] = d.Peek(bytes.Clone(s.states[identity{d.Key, d.Algorithm.Limit().Name,
				d.Algorithm.Name()}]), now)
		}
	}
	return results
}

// TestCheckRunning: histories of a correct server pass, whether its windows are shorter or longer
// than the history, and nearly none of a broken one.
func TestCheckRunning(t *testing.T) {
	const histories = 16
	for _, tt := range []struct {
		name   string
		window time.Duration
		clock  Clock
		bug    string
	}{
		{"window outlasts the history", time.Minute, Steady, ""},
		{"window is shorter than the history", 20 * time.Millisecond, Steady, ""},
		{"clock steps back", time.Minute, Stepped, ""},
		{"lost give-back", time.Minute, Steady, "lost give-back"},
		{"double record", time.Minute, Steady, "double record"},
		{"recorded though said not to be", time.Minute, Steady, "recorded though said not to be"},
		{"forgets when the clock steps back", time.Minute, Stepped, "unclamped"},
		{"clock steps back unheard of", time.Minute, Steady, "steps"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var passed, failed, undecided int
			begin := time.Now()
			for seed := range uint64(histories) {
				steps := tt.clock == Stepped || tt.bug == "steps"
				err := CheckRunning(simulate(rand.New(rand.NewPCG(seed, 1)), tt.window, steps,
					tt.bug), tt.clock)
				switch {
				case err == nil:
					passed++
				case errors.Is(err, ErrUndecided):
					undecided++
				default:
					failed++
				}
			}
			t.Logf("%d passed, %d failed, %d undecided in %v",
				passed, failed, undecided, time.Since(begin))
			if tt.bug == "" && failed > 0 || tt.bug != "" && failed < histories/2 ||
				undecided > histories/4 {
				t.Errorf("%d passed, %d failed, %d undecided", passed, failed, undecided)
			}
		})
	}
}
