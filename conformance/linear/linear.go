// Package linear checks recorded histories of a store: those of conformance.Options, on a clock
// that stands still during each call, and those of servers on their own clock, some of whose
// answers got lost. It is a package of its own so that package conformance needs nothing but the
// standard library.
package linear

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/truewindow/ratelimit/conformance"
)

// timeout is how long a check may take. Histories of the suite take milliseconds.
const timeout = 30 * time.Second

// Errors of a check.
var (
	// ErrNotLinearizable says that no order of the operations of a history explains what they
	// returned.
	ErrNotLinearizable = errors.New("no order of these calls, each between its call and its " +
		"return, explains their results")

	// ErrUndecided says that the search took too long: it neither found an order nor proved that
	// there is none.
	ErrUndecided = errors.New("the search for an order of these calls was given up")
)

// Check returns nil if history is linearizable: if there is an order of its operations in which
// each took effect at one instant between its call and its return, and in which every result is the
// one of [driver.Demand.Step] on the states that the operations before it left (see
// [conformance.Operation.Answers]). Otherwise the error wraps ErrNotLinearizable or ErrUndecided,
// or says that a demand has no result.
func Check(history []conformance.Operation) error {
	for i, op := range history {
		if len(op.Demands) == 0 || len(op.Demands) != len(op.Results) {
			return malformed(i, op)
		}
	}
	return newSearch(history, held).check(time.Now().Add(timeout))
}

func malformed(i int, op conformance.Operation) error {
	return fmt.Errorf("operation %d has %d demands and %d results",
		i, len(op.Demands), len(op.Results))
}

// check searches for an order until a deadline.
func (s *search) check(deadline time.Time) error {
	left := time.Until(deadline)
	if left <= 0 {
		return ErrUndecided
	}
	ops, ok := s.intervals()
	if !ok {
		return ErrNotLinearizable
	}
	model := porcupine.Model{
		Init: func() any { return s.begin() },
		Step: func(before, input, _ any) (bool, any) {
			return s.step(before.(worlds), input.(int))
		},
		Equal: func(a, b any) bool { return a.(worlds).equal(b.(worlds)) },
	}
	switch result := porcupine.CheckOperationsTimeout(model, ops, left); {
	case result == porcupine.Ok:
		return nil
	case result == porcupine.Unknown || s.budget <= 0:
		return ErrUndecided
	}
	return ErrNotLinearizable
}

// intervals returns when each operation may have taken effect.
func (s *search) intervals() (ops []porcupine.Operation, ok bool) {
	if s.clock == Steady {
		return s.byClock()
	}
	for i, op := range s.ops {
		ops = append(ops, porcupine.Operation{ClientId: op.Client, Input: i, Call: int64(op.Call),
			Return: int64(op.Return)})
	}
	return ops, true
}

// byClock returns the intervals of operations that were decided one after the other on a Steady
// clock: intervals of places in that order, not of time, so that the search need not find the
// order. Operations of one reading of the clock share a place, and the search orders them. ok is
// false if an operation had returned before another was called, and was decided after it.
func (s *search) byClock() (ops []porcupine.Operation, ok bool) {
	var order, unknown []int
	for i, op := range s.ops {
		if op.unknown() {
			unknown = append(unknown, i)
		} else {
			order = append(order, i)
		}
	}
	now := func(i int) int64 { return s.ops[i].Now }
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(now(a), now(b)) })
	slices.SortStableFunc(unknown,
		func(a, b int) int { return cmp.Compare(s.ops[a].Call, s.ops[b].Call) })
	// when the operation at a place has taken effect, and so all before it
	latest := make([]time.Duration, len(order)+1)
	latest[len(order)] = math.MaxInt64
	for place := len(order) - 1; place >= 0; place-- {
		latest[place] = min(latest[place+1], s.ops[order[place]].Return)
	}
	soonest := time.Duration(math.MinInt64)
	for place := 0; place < len(order); {
		end := place + 1
		for end < len(order) && now(order[end]) == now(order[place]) {
			end++
		}
		for len(unknown) > 0 && s.ops[unknown[0]].Call <= latest[place] {
			at := int64(len(ops))
			ops = append(ops, porcupine.Operation{Input: unknown[0], Call: at, Return: at})
			unknown = unknown[1:]
		}
		at := int64(len(ops))
		for _, i := range order[place:end] {
			if soonest > s.ops[i].Return {
				return nil, false
			}
			ops = append(ops,
				porcupine.Operation{ClientId: s.ops[i].Client, Input: i, Call: at, Return: at})
		}
		for _, i := range order[place:end] {
			soonest = max(soonest, s.ops[i].Call)
		}
		place = end
	}
	return ops, true
}
