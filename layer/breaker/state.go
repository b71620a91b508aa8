package breaker

import (
	"fmt"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/truewindow/ratelimit/driver"
)

// State is what a breaker does with demands.
type State uint8

// The states.
const (
	Closed   State = iota // lets all through
	Open                  // lets none through
	HalfOpen              // the pause of Open is over: lets one through, as a trial

	numStates
)

var stateNames = [numStates]string{"closed", "open", "half-open"}

// states has the State for each state of gobreaker.
var states = [numStates]State{
	gobreaker.StateClosed:   Closed,
	gobreaker.StateOpen:     Open,
	gobreaker.StateHalfOpen: HalfOpen,
}

// String returns "closed", "open" or "half-open".
func (s State) String() string {
	if s >= numStates {
		return fmt.Sprintf("state(%d)", uint8(s))
	}
	return stateNames[s]
}

// State returns the state. An open breaker stays open until the next demand, even if its pause is
// over.
func (s *Store) State() State { return State(s.state.Load()) }

// changed is called with the lock of s.breaker.
func (s *Store) changed(from, to State) {
	until := int64(0)
	if to == Open {
		until = int64(time.Since(s.start) + s.pause)
		s.opened.Add(1)
	}
	s.until.Store(until)
	s.state.Store(uint32(to))
	if s.onChange != nil {
		s.onChange(from, to)
	}
}

// ErrOpen means that the store inside was not called, so nothing was recorded. It wraps
// [driver.ErrUnavailable].
var ErrOpen = fmt.Errorf("%w: the breaker is open", driver.ErrUnavailable)

// pausing reports whether the breaker is open and its pause not over. It saves refused demands from
// waiting for the lock of s.breaker.
func (s *Store) pausing() bool {
	until := s.until.Load()
	return until != 0 && int64(time.Since(s.start)) < until
}

// refuse counts a call that is not let through, and returns its error.
func (s *Store) refuse() error {
	s.refused.Add(1)
	return ErrOpen
}
