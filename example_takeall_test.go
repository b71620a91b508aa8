package ratelimit_test

import (
	"context"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/conformance"
)

// A SimpleAllStore is a SimpleStore that also decides several demands as one: it looks at all of them, and then takes.
type SimpleAllStore struct{ *SimpleStore }

func (s SimpleAllStore) TakeAll(ctx context.Context, ds []ratelimit.Demand, out []ratelimit.Result) error {
	if err := ratelimit.CheckTakeAll(ctx, ds, out); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now, admitted := s.now(), true
	for i, d := range ds {
		if err := s.run(d, d.Look, now, &out[i]); err != nil {
			return err
		}
		admitted = admitted && out[i].Allowed
	}
	if !admitted {
		return nil
	}
	for i, d := range ds {
		if err := s.run(d, d.Step, now, &out[i]); err != nil {
			return err
		}
	}
	return nil
}

type step func(state []byte, now int64) (next []byte, keep time.Duration, res ratelimit.Result)

// run runs a step or a look on the state of d, and does what keep says.
func (s SimpleAllStore) run(d ratelimit.Demand, run step, now int64, out *ratelimit.Result) error {
	id := stateID{d.Key, d.Algorithm.Limit().Name, d.Algorithm.Name()}
	next, keep, res := run(s.states[id], now)
	switch {
	case keep < 0:
		return ratelimit.ErrCorruptState
	case keep > 0 && len(next) == 0:
		delete(s.states, id)
	case keep > 0:
		s.states[id] = next
	}
	*out = res
	return nil
}

func TestSimpleAllStore(t *testing.T) {
	conformance.Run(t, func(_ testing.TB, now func() int64) conformance.Harness {
		store := SimpleAllStore{NewSimpleStore(now)}
		return conformance.Harness{
			Store:  store,
			Second: func(testing.TB) ratelimit.Store { return store },
		}
	}, nil)
}
