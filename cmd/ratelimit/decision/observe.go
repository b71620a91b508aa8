package decision

import (
	"context"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/driver"
)

// purposeKey is the key of a purpose in a context.
type purposeKey struct{}

// A purpose says what the calls of a store are for, where that is not what they do.
type purpose uint8

const (
	toAdmit  purpose = iota + 1 // peeks admit or refuse the call
	toTry                       // peeks that are admitted are followed by takes
	toCharge                    // takes that are refused are followed by forces
	toChoose                    // takes that are refused may be followed by takes of fewer limits
)

func purposeOf(ctx context.Context) purpose {
	p, _ := ctx.Value(purposeKey{}).(purpose)
	return p
}

func withPurpose(ctx context.Context, p purpose) context.Context {
	return context.WithValue(ctx, purposeKey{}, p)
}

// Admitting returns a context for a call that the answer of a peek admits or refuses; see [Takes].
// [Decider.Decide] needs it only for a Peek.
func Admitting(ctx context.Context) context.Context {
	return withPurpose(ctx, toAdmit)
}

// Takes returns an observer for which peeks that admit or refuse a call are takes of no units:
// those of a call of no units, those under blocks, and those of [Admitting]. A peek that refuses
// what would be taken one by one is a take of its units.
func Takes(observe func(context.Context, ratelimit.Observation)) observeFunc {
	return func(ctx context.Context, o ratelimit.Observation) {
		if o.Op == driver.OpPeek {
			switch p := purposeOf(ctx); {
			case p == toAdmit:
				o.Op, o.N = driver.OpTake, 0
			case p == toTry && o.Err == nil && !o.Admitted:
				o.Op = driver.OpTake
			}
		}
		observe(ctx, o)
	}
}

// asDecided returns an observer that leaves out calls which the store cannot decide together, since
// they are decided one by one then, and refusals that may not be the last word, of limits with
// Quota. What is charged whether it fits or not is a force for it.
func asDecided(observe observeFunc) observeFunc {
	if observe == nil {
		return nil
	}
	return func(ctx context.Context, o ratelimit.Observation) {
		if apart(o.Err) || o.Err == nil && !o.Admitted && purposeOf(ctx) == toChoose {
			return
		}
		if o.Op == driver.OpTake && purposeOf(ctx) == toCharge {
			if o.Err == nil && !o.Admitted {
				return
			}
			o.Op = driver.OpForce
		}
		observe(ctx, o)
	}
}

// observed returns the context for observers of uses.
func (p *plan) observed(ctx context.Context, uses []use) context.Context {
	switch {
	case p.opts.Force:
		return withPurpose(ctx, toCharge)
	case p.opts.Peek && !p.estimated:
		return ctx // as the caller says
	}
	for i := range uses {
		if p.estimated || uses[i].n == 0 {
			return Admitting(ctx)
		}
	}
	return ctx
}

// observeNever observes the refusals of uses that the store is not asked about, since the limit
// can never admit the units.
func (p *plan) observeNever(ctx context.Context, uses []use) {
	observe := p.decider.observe
	if observe == nil || p.opts.Force {
		return
	}
	for i := range uses {
		u := &uses[i]
		if !u.refuses() || !u.status.Never {
			continue
		}
		op := driver.OpTake
		switch {
		case p.opts.Peek:
			op = driver.OpPeek
		case p.opts.Hold != nil && u.n > 0:
			op = driver.OpHold
		}
		results := [1]ratelimit.Result{u.status.Result}
		observe(ctx, ratelimit.Observation{Key: u.status.Key, Op: op, N: u.n,
			Limits: []ratelimit.Limit{u.status.Result.Limit}, Results: results[:]})
	}
}
