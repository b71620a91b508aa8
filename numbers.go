package ratelimit

import (
	"fmt"
	"slices"

	"github.com/truewindow/ratelimit/driver"
)

// unnamed is the number of a claim for which there is none.
const unnamed = -1

// bare returns numbers for all claims, of which the one with a Budget has the number in n. Like
// named, it runs without the lock, and so reads no N of the claims.
func (r *Reservation) bare(n []int64) ([]int64, error) {
	numbers, at := r.numbers(), -1
	if len(n) == 0 {
		return numbers, nil
	}
	for i := range r.claims {
		if r.claims[i].Limiter.only(isBudget) == nil {
			continue
		}
		if at >= 0 {
			return nil, fmt.Errorf("%w demand: the reservation has several Budgets: name them",
				ErrInvalid)
		}
		at = i
	}
	if at < 0 {
		return nil, fmt.Errorf("%w demand: no claim of the reservation has a Budget", ErrInvalid)
	}
	if len(n) > 1 {
		return nil, fmt.Errorf("%w demand: %d numbers of units for one Budget", ErrInvalid, len(n))
	}
	numbers[at] = n[0]
	return numbers, checkUnits(n[0])
}

// named returns numbers for all claims, of which those with the limiters of named have a number.
func (r *Reservation) named(named []Claim) ([]int64, error) {
	numbers := r.numbers()
	for _, n := range named {
		at := -1
		for i := range r.claims {
			c := &r.claims[i]
			fits := sameBudgets(n.Limiter, c.Limiter) && (n.Key == "" || n.Key == c.Key)
			switch {
			case !fits:
			case at >= 0:
				return nil, fmt.Errorf("%w demand: two claims have the limiter of %v: name the key",
					ErrInvalid, c.Limiter.limits)
			default:
				at = i
			}
		}
		if at < 0 || r.claims[at].Limiter.only(isBudget) == nil {
			return nil, fmt.Errorf("%w demand: the reservation has no Budget of a limiter that "+
				"was named", ErrInvalid)
		}
		if err := checkUnits(n.N); err != nil {
			return nil, err
		}
		if numbers[at] != unnamed {
			return nil, fmt.Errorf("%w demand: the limiter of %v is named twice",
				ErrInvalid, n.Limiter.limits)
		}
		numbers[at] = n.N
	}
	return numbers, nil
}

// sameBudgets reports whether a and b have the same Budgets.
func sameBudgets(a, b *Limiter) bool {
	if a == nil {
		return false
	}
	if a, b = a.only(isBudget), b.only(isBudget); a == nil || b == nil {
		return false
	}
	return slices.Equal(a.algorithms, b.algorithms)
}

func (r *Reservation) numbers() []int64 {
	return slices.Repeat([]int64{unnamed}, len(r.claims))
}

func checkUnits(n int64) error {
	if n < 0 || n > driver.MaxUnits {
		return fmt.Errorf("%w demand: %d is not a number of units from 0 to %d", ErrInvalid, n,
			driver.MaxUnits)
	}
	return nil
}
