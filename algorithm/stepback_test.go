package algorithm

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// TestStepsBack runs logs of every kind of resolution on a clock that steps back by a few
// microseconds, by up to a Window, and by more. Windows are counted in elapsed time, which is what
// the clock would show if it had never stepped: none may hold more than Max units.
func TestStepsBack(t *testing.T) {
	const window = 1000 // µs
	for _, resolution := range []int64{1, 2, 3, 7, 8, 9, 100, 333, 499, 500, 501, 512,
		513, 999, 1000} {
		for seed := range uint64(60) {
			r := rand.New(rand.NewPCG(seed, uint64(resolution)))
			most := 1 + r.Int64N(12)
			l := SlidingLog(driver.Limit{Max: most, Window: window * time.Microsecond}).
				WithResolution(time.Duration(resolution) * time.Microsecond)
			slop := int64(1)
			for slop < resolution {
				slop *= 2
			}
			slop--
			var state []byte
			var admitted []int64 // elapsed time of each unit
			elapsed, clock := int64(0), epoch+r.Int64N(window)
			largest := pickStep(seed)
			for range 600 {
				pass := r.Int64N(pickPass(r, window))
				elapsed, clock = elapsed+pass, clock+pass
				if r.IntN(8) == 0 {
					clock -= r.Int64N(pickPass(r, largest) + 1)
				}
				d := take(1 + r.Int64N(most))
				if r.IntN(6) == 0 {
					d.Op = driver.OpPeek
				}
				next, keep, res := l.Step(state, clock, d)
				if keep < 0 {
					t.Fatalf("resolution %d, seed %d: corrupt", resolution, seed)
				}
				if keep > 0 {
					state = next
				}
				if wait := res.RetryAfter.Microseconds(); wait > 2*window+slop {
					t.Fatalf("resolution %d, seed %d: wait %d µs", resolution, seed, wait)
				}
				if !res.Allowed || d.Op == driver.OpPeek {
					continue
				}
				for range d.N {
					admitted = append(admitted, elapsed)
				}
				if n := len(admitted) - 1 - int(most); n >= 0 && admitted[n] > elapsed-window {
					t.Fatalf("resolution %d, seed %d: %d units within %d µs, %d in %d is the limit",
						resolution, seed, most+1, elapsed-admitted[n], most, window)
				}
			}
		}
	}
}

// pickStep returns the largest step back of a history: a few microseconds, a Window, or three.
func pickStep(seed uint64) int64 { return []int64{5, 1000, 3000}[seed%3] }

// pickPass returns a small or a large bound, up to most.
func pickPass(r *rand.Rand, most int64) int64 {
	if r.IntN(2) == 0 {
		return min(most, 4)
	}
	return most
}

// TestSmallStepBack runs the smallest history in which the rounding of a stamp could be mistaken
// for a step of the clock: the newest stamp is nearly a Window ahead, and the clock steps back by 3
// µs.
func TestSmallStepBack(t *testing.T) {
	const minute = 60 * second
	l := SlidingLog(driver.PerMinute("minute", 10)).WithResolution(time.Minute)
	begin := (epoch/minute + 1) * minute
	state, _, _ := l.Step(nil, begin, take(9))
	state, _, _ = l.Step(state, begin+1, take(1))
	if _, keep, res := l.Step(state, begin-2, take(1)); res.Allowed || keep != 0 {
		t.Errorf("3 µs back, with 10 of 10 units in the window: %+v, keep %v", res, keep)
	}
}

// TestStepBackMovesToSlop: when the clock steps back by more than a Window, the stamps move so far
// that the newest record may have been written now at the earliest, and a peek writes that.
func TestStepBackMovesToSlop(t *testing.T) {
	const minute = 60 * second
	l := SlidingLog(driver.PerMinute("minute", 10)).WithResolution(time.Second)
	slop := int64(1<<20 - 1)
	begin := (epoch/minute + 1) * minute
	state, _, _ := l.Step(nil, begin, take(9))
	state, _, _ = l.Step(state, begin+1, take(1)) // its stamp is begin + 1 s
	newest := begin + second
	for _, back := range []int64{minute, minute + 1} {
		now := newest - slop - back
		_, keep, res := l.Step(append([]byte(nil), state...), now, peek(1))
		if want := back > minute; (keep > 0) != want || res.Allowed {
			t.Errorf("the newest stamp less the slop %d µs ahead: keep %v, %+v", back, keep, res)
		}
		if back > minute && res.RetryAfter.Microseconds() != slop-second+minute {
			t.Errorf("wait %v until the first 9 units have left", res.RetryAfter)
		}
	}
}
