package layer

import (
	"context"
	"fmt"
	"time"

	"github.com/truewindow/ratelimit"
)

// An Observation is what became of one demand.
type Observation struct {
	// Demand is what was asked. Its key is the caller's data: do not write it to logs, and do not make it a label of a metric, where it would
	// also be one of very many. Its Algorithm is nil if the caller gave none.
	Demand ratelimit.Demand
	// Result is what was answered. Beside an error it is what the store's policy proposes.
	Result ratelimit.Result
	// Err is the error of the call, or nil. One that wraps [ratelimit.ErrUnavailable] left the demand undecided; any other means that it
	// could not be decided whatever the state.
	Err error
	// Admitted tells that the call had no error and that all of its demands were allowed. A call that refused one admitted none, although the
	// Result of another says that it would fit; nor did one with an error, although the policy of Result may let the demand pass.
	Admitted bool
	// Together is the number of demands that the call decided as one: 1 for a Take.
	Together int
	// Took is how long the call took: that of all demands which it decided.
	Took time.Duration
}

// Limit returns the limit that was asked about; the zero Limit if the caller gave no algorithm.
func (o Observation) Limit() ratelimit.Limit {
	if o.Demand.Algorithm == nil {
		return ratelimit.Limit{}
	}
	return o.Demand.Algorithm.Limit()
}

// Observed is a store that tells what it decided. Create one with [NewObserved]. It is safe for simultaneous use.
//
// It tells of what passes it: around all other layers, of what callers are answered; around the store inside of them, of what that is asked.
type Observed struct {
	store   ratelimit.Store
	observe func(context.Context, Observation)
}

var _ ratelimit.Store = (*Observed)(nil)

// NewObserved returns a store that asks store and calls observe with each demand after it was decided, or was not: those of a TakeAll one after the
// other, in order. observe is called by the goroutines that ask, which wait for it, so it must be safe for simultaneous use and return soon. A
// Take allocates nothing for it. An error wraps [ErrInvalidOptions].
func NewObserved(store ratelimit.Store, observe func(context.Context, Observation)) (*Observed, error) {
	if store == nil {
		return nil, fmt.Errorf("%w: no store", ErrInvalidOptions)
	}
	if observe == nil {
		return nil, fmt.Errorf("%w: nobody to observe", ErrInvalidOptions)
	}
	return &Observed{store, observe}, nil
}

// Take decides one demand. Result and error are those of the store inside.
func (s *Observed) Take(ctx context.Context, d ratelimit.Demand) (ratelimit.Result, error) {
	began := time.Now()
	res, err := s.store.Take(ctx, d)
	s.observe(ctx, Observation{Demand: d, Result: res, Err: err, Admitted: err == nil && res.Allowed, Together: 1, Took: time.Since(began)})
	return res, err
}

// TakeAll decides several demands as one. Results and error are those of the store inside.
func (s *Observed) TakeAll(ctx context.Context, ds []ratelimit.Demand, out []ratelimit.Result) error {
	began := time.Now()
	err := s.store.TakeAll(ctx, ds, out)
	o := Observation{Err: err, Admitted: err == nil, Together: len(ds), Took: time.Since(began)}
	for i := range out {
		o.Admitted = o.Admitted && out[i].Allowed
	}
	for i := range ds {
		o.Demand, o.Result = ds[i], ratelimit.Result{}
		if i < len(out) { // as in all calls but those that are refused for it
			o.Result = out[i]
		}
		s.observe(ctx, o)
	}
	return err
}
