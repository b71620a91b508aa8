//go:build !race

package linear

import (
	"bytes"
	"cmp"
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
	next, keep, res := d.Step(bytes.Clone(s.states[id]), now)
	if keep > 0 && (s.bug != "lost settlement" || d.Op != driver.OpSettle) {
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
	held := algorithm.Budget(limits[0]).WithTimeout(max(window, 16*time.Millisecond))
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
			case 2:
				op.Demands[0] = driver.Demand{Key: keys[0], Algorithm: held, Op: driver.OpHold,
					ID: 1 + r.Uint64N(6), N: r.Int64N(4)}
			case 3, 4:
				op.Demands[0] = driver.Demand{Key: keys[0], Algorithm: held, Op: driver.OpSettle,
					ID: 1 + r.Uint64N(6), N: r.Int64N(3)}
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
	slices.SortFunc(runs, func(a, b *run) int { return cmp.Compare(a.effect, b.effect) })
	s := &server{states: map[identity][]byte{}, bug: bug}
	offset, half := int64(0), runs[len(runs)/2].effect
	for _, op := range runs {
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
			op.Now = now + int64(op.effect) + offset
			op.Results = s.runAll(op.Demands, op.Now)
			if op.twice {
				s.runAll(op.Demands, now+int64(op.effect)+offset+1)
			}
		}
		if op.lost {
			op.Results = nil
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
		{"lost settlement", time.Minute, Steady, "lost settlement"},
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
