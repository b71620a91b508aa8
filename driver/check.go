package driver

import (
	"context"
	"fmt"
)

// CheckTake returns nil if a store may decide d. Otherwise the error wraps [ErrInvalid] or
// [ErrExceedsLimit], or, if ctx has ended, [ErrUnavailable] and the context's error. Of the limit
// it checks only whether Max and Window are in range. Stores call it at the beginning of Take.
func CheckTake(ctx context.Context, d Demand) error {
	// This is the body of ended, which the compiler would not inline.
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return d.check()
}

// MaxDemands is the most demands of a TakeAll. A server decides nothing else meanwhile, and
// strangers may choose the demands: anyone can make up the claims of a token.
const MaxDemands = 256

// CheckTakeAll is [CheckTake] for all of ds, for TakeAll. It also returns [ErrInvalid] if two
// demands are on one state, if ds is empty or longer than [MaxDemands], or if out has another
// length.
func CheckTakeAll(ctx context.Context, ds []Demand, out []Result) error {
	if err := ended(ctx); err != nil {
		return err
	}
	if len(ds) == 0 || len(ds) != len(out) {
		return fmt.Errorf("%w demand: %d demands with room for %d results",
			ErrInvalid, len(ds), len(out))
	}
	if len(ds) > MaxDemands {
		return fmt.Errorf("%w demand: %d limits in one call, more than %d",
			ErrInvalid, len(ds), MaxDemands)
	}
	for i := range ds {
		if err := ds[i].check(); err != nil {
			return err
		}
	}
	if err := checkLeast(ds); err != nil {
		return err
	}
	return checkDistinct(ds)
}

// checkLeast returns an error if demands with a Least differ in N or Least.
func checkLeast(ds []Demand) error {
	first := -1
	for i := range ds {
		switch {
		case ds[i].Least == 0:
		case first < 0:
			first = i
		case ds[i].N != ds[first].N || ds[i].Least != ds[first].Least:
			return fmt.Errorf("%w demand: from %d to %d units and from %d to %d in one call: "+
				"what may be granted in part is the same number everywhere", ErrInvalid,
				ds[first].Least, ds[first].N, ds[i].Least, ds[i].N)
		}
	}
	return nil
}

// ended returns an error that wraps [ErrUnavailable] if ctx has ended.
func ended(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return nil
}

func (d *Demand) check() error {
	switch {
	case d.Key == "":
		return fmt.Errorf("%w demand: empty key", ErrInvalid)
	case d.Algorithm == nil:
		return fmt.Errorf("%w demand: no algorithm", ErrInvalid)
	case d.Op >= numOps:
		return fmt.Errorf("%w demand: unknown %v", ErrInvalid, d.Op)
	case d.Least != 0 && (d.Op != OpTake && d.Op != OpHold || d.Least < 0 || d.Least > d.N):
		return fmt.Errorf("%w demand: Least is %d of an %v of %d units, not 0 or from 1 to N of a "+
			"take or hold", ErrInvalid, d.Least, d.Op, d.N)
	case d.Op == OpHold || d.Op == OpSettle:
		if err := d.checkHold(); err != nil {
			return err
		}
	case d.Op != OpReset && (d.N < 1 || d.N > MaxUnits):
		return fmt.Errorf("%w demand: n is %d, not between 1 and %d", ErrInvalid, d.N, MaxUnits)
	}
	limit := d.Algorithm.Limit()
	if limit.Max < 1 || limit.Max > MaxUnits || limit.Window < MinWindow ||
		limit.Window > MaxWindow {
		return limit.Validate()
	}
	if n := d.LeastUnits(); n > limit.Max && (d.Op <= OpPeek || d.Op == OpHold) {
		return fmt.Errorf("%w: %d units, but %v admits at most %d",
			ErrExceedsLimit, n, limit, limit.Max)
	}
	return nil
}

// holdRange is how much shorter or longer than HoldTimeout a hold may be.
const holdRange = 16

func (d *Demand) checkHold() error {
	h, ok := d.Algorithm.(Holder)
	if !ok {
		return fmt.Errorf("%w demand: %v of %v, which has no holds: wrap its algorithm in "+
			"algorithm.Budget", ErrInvalid, d.Op, d.Algorithm.Limit())
	}
	least, most := h.HoldTimeout()/holdRange, h.HoldTimeout()*holdRange
	switch {
	case d.ID == 0:
		return fmt.Errorf("%w demand: %v without an ID", ErrInvalid, d.Op)
	case d.N < 0 || d.N > MaxUnits:
		return fmt.Errorf("%w demand: n is %d, not between 0 and %d", ErrInvalid, d.N, MaxUnits)
	case d.Op == OpHold && d.HoldTimeout != 0 && (d.HoldTimeout < least || d.HoldTimeout > most):
		return fmt.Errorf("%w demand: HoldTimeout is %v, not 0 or between %v and %v",
			ErrInvalid, d.HoldTimeout, least, most)
	}
	return nil
}

// maxPairwise is the number of demands up to which comparing all pairs is cheaper than building a
// set.
const maxPairwise = 16

func checkDistinct(ds []Demand) error {
	if len(ds) <= maxPairwise {
		for i := range ds {
			for j := range i {
				if ds[i].Key == ds[j].Key &&
					stateNameOf(ds[i].Algorithm) == stateNameOf(ds[j].Algorithm) {
					return duplicate(ds[i])
				}
			}
		}
		return nil
	}
	type state struct {
		key string
		stateName
	}
	seen := make(map[state]struct{}, len(ds))
	for i := range ds {
		s := state{ds[i].Key, stateNameOf(ds[i].Algorithm)}
		if _, ok := seen[s]; ok {
			return duplicate(ds[i])
		}
		seen[s] = struct{}{}
	}
	return nil
}

// stateName identifies a state, together with the key.
type stateName struct{ limit, algorithm string }

func stateNameOf(a Algorithm) stateName { return stateName{a.Limit().Name, a.Name()} }

func duplicate(d Demand) error {
	return fmt.Errorf("%w demand: the limit name %q occurs twice for one key",
		ErrInvalid, d.Algorithm.Limit().Name)
}
