//go:build !race

package linear

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/conformance"
	"github.com/truewindow/ratelimit/driver"
)

// coarse returns the history of eight clients of a correct store whose clock stands still for a
// tick, so that many calls share a record.
func coarse(tick int64) (history []conformance.Operation) {
	r := rand.New(rand.NewPCG(1, 2))
	s := &server{states: map[identity][]byte{}}
	for i := range 400 {
		at := time.Duration(i) * 500 * time.Microsecond
		clock := (now + at.Microseconds()) / tick * tick
		d := take(three)
		d.Key = "k" + string(rune('0'+r.IntN(3)))
		switch r.IntN(4) {
		case 0:
			d.Op = driver.OpPeek
		case 1:
			d.Op = driver.OpForce
		}
		history = append(history, conformance.Operation{
			Client: i % 8, Now: clock,
			Call: at - 2*time.Millisecond, Return: at + 2*time.Millisecond,
			Demands: []driver.Demand{d}, Results: []driver.Result{s.take(d, clock)},
		})
	}
	return history
}

// TestCoarseClock: for a history by a clock without microseconds the check fails at once, and says
// why.
func TestCoarseClock(t *testing.T) {
	for _, tick := range []int64{1e3, 1e6} {
		begin := time.Now()
		err := CheckRunning(coarse(tick), Steady)
		if !errors.Is(err, ErrUndecided) || !strings.Contains(err.Error(), "microseconds") {
			t.Errorf("a clock that ticks every %dµs: %v", tick, err)
		}
		if took := time.Since(begin); took > time.Second {
			t.Errorf("a clock that ticks every %dµs: %v", tick, took)
		}
	}
}

// TestCheckRunningEnds: a hopeless search is given up in time.
func TestCheckRunningEnds(t *testing.T) {
	const limit = 200 * time.Millisecond
	begin := time.Now()
	err := checkRunning(coarse(1e6), Steady, limit)
	if took := time.Since(begin); !errors.Is(err, ErrUndecided) || took > 4*limit+time.Second {
		t.Errorf("%v after %v", err, took)
	}
}
