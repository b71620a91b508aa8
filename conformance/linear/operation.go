package linear

import "github.com/truewindow/ratelimit/conformance"

// A Clock is what is known of the clock of a store.
type Clock int

// The clocks.
const (
	held Clock = iota // stands still between Call and Return of every operation

	// Steady never steps back.
	Steady
	// Stepped may step, back and forth.
	Stepped
)

// operation is one of a history, with the numbers of its states.
type operation struct {
	conformance.Operation
	states []int
	kind   int // of an unknown outcome
	// of an answered one: its states, and those that operations of unknown outcome may share with
	// them
	reach []int
}

func (op operation) unknown() bool { return len(op.Results) == 0 }
