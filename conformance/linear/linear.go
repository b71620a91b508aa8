// Package linear checks recorded histories of a store for conformance.Options. It is a package of its own so that package
// conformance needs nothing but the standard library.
package linear

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/conformance"
)

// timeout is how long the search for an order may take. Histories of the suite take milliseconds.
const timeout = 30 * time.Second

// ErrNotLinearizable says that no order of the operations of a history explains what they returned.
var ErrNotLinearizable = errors.New("no order of these calls, each between its call and its return, explains their results")

// Check returns nil if history is linearizable: if there is an order of its operations in which each took effect at one instant between its
// call and its return, and in which every result is the one of [ratelimit.Demand.Step] on the states that the operations before it left
// (see [conformance.Operation.Answers]).
// Otherwise the error wraps ErrNotLinearizable, or says that the search took too long.
func Check(history []conformance.Operation) error {
	ops := make([]porcupine.Operation, len(history))
	for i, op := range history {
		if len(op.Demands) == 0 || len(op.Demands) != len(op.Results) {
			return fmt.Errorf("operation %d has %d demands and %d results", i, len(op.Demands), len(op.Results))
		}
		ops[i] = porcupine.Operation{ClientId: op.Client, Input: op, Call: int64(op.Call), Return: int64(op.Return)}
	}
	model := porcupine.Model{
		Init: func() any { return states(nil) },
		Step: func(before, input, _ any) (bool, any) {
			return before.(states).explain(input.(conformance.Operation))
		},
		Equal: func(a, b any) bool { return maps.Equal(a.(states), b.(states)) },
	}
	switch porcupine.CheckOperationsTimeout(model, ops, timeout) {
	case porcupine.Ok:
		return nil
	case porcupine.Illegal:
		return ErrNotLinearizable
	default:
		return fmt.Errorf("no order was found within %v, nor that there is none", timeout)
	}
}

type identity struct{ key, limit, algorithm string }

// states are the states of a store. They are never changed in place.
type states map[identity]string

// explain tells whether op may return what it did on s, and what it leaves.
func (s states) explain(op conformance.Operation) (bool, states) {
	if len(op.Demands) > 1 {
		after, results := s.run(op, ratelimit.Demand.Look)
		if slices.ContainsFunc(results, func(r ratelimit.Result) bool { return !r.Allowed }) {
			return op.Answers(results), after
		}
	}
	after, results := s.run(op, ratelimit.Demand.Step)
	return op.Answers(results), after
}

func (s states) run(op conformance.Operation, step func(ratelimit.Demand, []byte, int64) ([]byte, time.Duration, ratelimit.Result)) (after states, results []ratelimit.Result) {
	after = s
	for _, d := range op.Demands {
		id := identity{d.Key, d.Algorithm.Limit().Name, d.Algorithm.Name()}
		next, keep, res := step(d, bytes.Clone([]byte(s[id])), op.Now)
		results = append(results, res)
		if keep == 0 {
			continue
		}
		changed := states{}
		maps.Copy(changed, after)
		if delete(changed, id); len(next) > 0 {
			changed[id] = string(next)
		}
		after = changed
	}
	return after, results
}
