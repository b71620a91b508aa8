package breaker

import (
	"fmt"
	"time"

	"github.com/sony/gobreaker/v2"
)

// State is what a breaker does with demands.
type State uint8

// The states.
const (
	Closed   State = iota // lets all through
	Open                  // lets none through
	HalfOpen              // lets one through and then decides: the pause of Open is over

	numStates
)

var stateNames = [numStates]string{"closed", "open", "half-open"}

// states has ours for gobreaker's.
var states = [numStates]State{gobreaker.StateClosed: Closed, gobreaker.StateOpen: Open, gobreaker.StateHalfOpen: HalfOpen}

// String returns "closed", "open" or "half-open".
func (s State) String() string {
	if s >= numStates {
		return fmt.Sprintf("state(%d)", uint8(s))
	}
	return stateNames[s]
}

// State returns the state. An open breaker stays open until it is asked again, however long its pause is over.
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

// pausing tells that the breaker is open and would let nobody through yet. It spares demands the lock that they would all wait for.
func (s *Store) pausing() bool {
	until := s.until.Load()
	return until != 0 && int64(time.Since(s.start)) < until
}

// refuse counts a call that is not let through, and returns its error.
func (s *Store) refuse() error {
	s.refused.Add(1)
	return ErrOpen
}
