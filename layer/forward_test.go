package layer_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/conformance"
	"github.com/truewindow/ratelimit/layer"
)

var perMinute = algorithm.SlidingLog(ratelimit.PerMinute(7))

func unit(key string) ratelimit.Demand {
	return ratelimit.Demand{Key: key, Algorithm: perMinute, N: 1}
}

// wrap puts a layer around a store, and fails the test if it cannot.
type wrap func(t testing.TB, inner ratelimit.Store) ratelimit.Store

func checked[S ratelimit.Store](t testing.TB, s S, err error) ratelimit.Store {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func deadline(t testing.TB, inner ratelimit.Store) ratelimit.Store {
	s, err := layer.NewDeadline(inner, time.Minute)
	return checked(t, s, err)
}

func prefix(t testing.TB, inner ratelimit.Store) ratelimit.Store {
	s, err := layer.NewPrefix(inner, "api:")
	return checked(t, s, err)
}

func observed(t testing.TB, inner ratelimit.Store) ratelimit.Store {
	s, err := layer.NewObserved(inner, func(context.Context, layer.Observation) {})
	return checked(t, s, err)
}

// TestLayersConformance: each layer, and several of them in each order, keep what the store inside keeps.
func TestLayersConformance(t *testing.T) {
	for name, around := range map[string][]wrap{ // the first is outside
		"deadline":                 {deadline},
		"prefix":                   {prefix},
		"observed":                 {observed},
		"prefix,observed,deadline": {prefix, observed, deadline},
		"deadline,prefix,prefix":   {deadline, prefix, prefix},
	} {
		t.Run(name, func(t *testing.T) {
			conformance.Run(t, func(t testing.TB, now func() int64) conformance.Harness {
				memory, err := memorystore.New(&memorystore.Options{Now: now})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { memory.Close() })
				store := ratelimit.Store(memory)
				for _, w := range slices.Backward(around) {
					store = w(t, store)
				}
				return conformance.Harness{Store: store, Close: memory.Close}
			}, nil)
		})
	}
}

func TestInvalidLayers(t *testing.T) {
	inner := newOutage(t)
	for name, make := range map[string]func() error{
		"Deadline of nothing":    func() error { _, err := layer.NewDeadline(nil, time.Second); return err },
		"Deadline after no time": func() error { _, err := layer.NewDeadline(inner, 0); return err },
		"Deadline in the past":   func() error { _, err := layer.NewDeadline(inner, -1); return err },
		"Prefix of nothing":      func() error { _, err := layer.NewPrefix(nil, "p"); return err },
		"empty Prefix":           func() error { _, err := layer.NewPrefix(inner, ""); return err },
		"Observed of nothing": func() error {
			_, err := layer.NewObserved(nil, func(context.Context, layer.Observation) {})
			return err
		},
		"Observed by nobody": func() error { _, err := layer.NewObserved(inner, nil); return err },
	} {
		if err := make(); !errors.Is(err, layer.ErrInvalidOptions) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestLayersPassOn: what the store inside returns beside an error is returned as it is.
func TestLayersPassOn(t *testing.T) {
	for name, w := range map[string]wrap{"deadline": deadline, "prefix": prefix, "observed": observed} {
		for _, policy := range []ratelimit.Policy{0, ratelimit.FailClosed, ratelimit.FailOpen} {
			inner := &broken{policy: policy}
			store := w(t, inner)
			want := policy.Undecided(unit("k"), errBroken)
			if res, err := store.Take(t.Context(), unit("k")); err != errBroken || res != want {
				t.Errorf("%s, %v: %+v, %v", name, policy, res, err)
			}
			ds, out := []ratelimit.Demand{unit("k"), unit("l")}, make([]ratelimit.Result, 2)
			if err := store.TakeAll(t.Context(), ds, out); err != errBroken || out[0] != want || out[1] != want {
				t.Errorf("%s, %v: %+v, %v", name, policy, out, err)
			}
			if ds[0] != unit("k") || ds[1] != unit("l") {
				t.Errorf("%s: the caller's demands are now %+v", name, ds)
			}
		}
	}
}

// errBroken must be the very one that arrives.
var errBroken = errors.Join(ratelimit.ErrOutcomeUnknown)

// broken is a store that is away.
type broken struct{ policy ratelimit.Policy }

func (s *broken) Take(_ context.Context, d ratelimit.Demand) (ratelimit.Result, error) {
	return s.policy.Undecided(d, errBroken), errBroken
}

func (s *broken) TakeAll(_ context.Context, ds []ratelimit.Demand, out []ratelimit.Result) error {
	s.policy.UndecidedAll(ds, out, errBroken)
	return errBroken
}

// hanging is a store that does nothing until the context ends.
type hanging struct{}

func (hanging) Take(ctx context.Context, _ ratelimit.Demand) (ratelimit.Result, error) {
	<-ctx.Done()
	return ratelimit.Result{}, errors.Join(ratelimit.ErrOutcomeUnknown, ctx.Err())
}

func (s hanging) TakeAll(ctx context.Context, _ []ratelimit.Demand, _ []ratelimit.Result) error {
	_, err := s.Take(ctx, ratelimit.Demand{})
	return err
}

// TestDeadline: a call takes as long as the deadline or the context says, whichever is less.
func TestDeadline(t *testing.T) {
	const after = 100 * time.Millisecond
	for name, tt := range map[string]struct {
		timeout, cancel time.Duration // of the caller
		want            time.Duration
		err             error
	}{
		"no deadline":             {time.Hour, time.Hour, after, context.DeadlineExceeded},
		"later deadline":          {after + 1, time.Hour, after, context.DeadlineExceeded},
		"earlier deadline":        {after - 1, time.Hour, after - 1, context.DeadlineExceeded},
		"deadline before":         {-1, time.Hour, 0, context.DeadlineExceeded},
		"caller leaves":           {time.Hour, 30, 30, context.Canceled},
		"caller leaves, deadline": {after - 1, 30, 30, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, err := layer.NewDeadline(hanging{}, after)
				if err != nil {
					t.Fatal(err)
				}
				for name, call := range map[string]func(ctx context.Context) error{
					"Take":    func(ctx context.Context) error { _, err := store.Take(ctx, unit("k")); return err },
					"TakeAll": func(ctx context.Context) error { return store.TakeAll(ctx, nil, nil) },
				} {
					ctx := t.Context()
					if tt.timeout < time.Hour {
						var cancel context.CancelFunc
						ctx, cancel = context.WithTimeout(ctx, tt.timeout)
						defer cancel()
					}
					ctx, cancel := context.WithCancel(ctx)
					defer cancel()
					if tt.cancel < time.Hour {
						time.AfterFunc(tt.cancel, cancel)
					}
					began := time.Now()
					if err := call(ctx); !errors.Is(err, tt.err) || time.Since(began) != tt.want {
						t.Errorf("%s took %v, want %v: %v", name, time.Since(began), tt.want, err)
					}
				}
			})
		})
	}
}

// recorder notes the demands that reach the store inside.
type recorder struct {
	ratelimit.Store
	keys []string
}

func (s *recorder) Take(ctx context.Context, d ratelimit.Demand) (ratelimit.Result, error) {
	s.keys = append(s.keys, d.Key)
	return s.Store.Take(ctx, d)
}

func (s *recorder) TakeAll(ctx context.Context, ds []ratelimit.Demand, out []ratelimit.Result) error {
	for _, d := range ds {
		s.keys = append(s.keys, d.Key)
	}
	return s.Store.TakeAll(ctx, ds, out)
}

func TestPrefix(t *testing.T) {
	inner := &recorder{Store: newOutage(t)}
	store := prefix(t, inner)
	if _, err := store.Take(t.Context(), unit("k")); err != nil {
		t.Fatal(err)
	}
	ds := []ratelimit.Demand{unit("k"), unit("api:k"), unit("\x00{")}
	out := make([]ratelimit.Result, 3)
	if err := store.TakeAll(t.Context(), ds, out); err != nil || out[0].Remaining != 5 || out[1].Remaining != 6 {
		t.Fatalf("%+v, %v", out, err)
	}
	if ds[0].Key != "k" {
		t.Errorf("the caller's demand is for %q now", ds[0].Key)
	}
	if want := []string{"api:k", "api:k", "api:api:k", "api:\x00{"}; !slices.Equal(inner.keys, want) {
		t.Errorf("keys inside %q, want %q", inner.keys, want)
	}
	if _, err := store.Take(t.Context(), unit("")); !errors.Is(err, ratelimit.ErrInvalidDemand) {
		t.Errorf("an empty key: %v", err)
	}
	if err := store.TakeAll(t.Context(), []ratelimit.Demand{unit("k"), unit("")}, make([]ratelimit.Result, 2)); !errors.Is(err, ratelimit.ErrInvalidDemand) {
		t.Errorf("an empty key among others: %v", err)
	}
}

func TestObserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []layer.Observation
		inner := newOutage(t)
		store, err := layer.NewObserved(slow{inner}, func(ctx context.Context, o layer.Observation) {
			if ctx != t.Context() {
				t.Error("another context")
			}
			seen = append(seen, o)
		})
		if err != nil {
			t.Fatal(err)
		}
		take := func(op ratelimit.Op, n int64) layer.Observation {
			d := ratelimit.Demand{Key: "k", Algorithm: perMinute, Op: op, N: n}
			res, err := store.Take(t.Context(), d)
			return layer.Observation{Demand: d, Result: res, Err: err, Admitted: err == nil && res.Allowed, Together: 1, Took: time.Millisecond}
		}
		want := []layer.Observation{take(ratelimit.Take, 5), take(ratelimit.Take, 5), take(ratelimit.Look, 2), take(ratelimit.Force, 9)}
		inner.mode.Store(gone)
		want = append(want, take(ratelimit.Take, 1))
		inner.mode.Store(up)
		want = append(want, take(ratelimit.Take, 8))
		if !want[0].Admitted || want[1].Admitted || want[4].Err == nil || want[4].Result.Source != ratelimit.SourceClosed || want[5].Err == nil {
			t.Fatalf("%+v", want)
		}

		ds, out := []ratelimit.Demand{unit("k"), unit("free")}, make([]ratelimit.Result, 2)
		all := func(admitted bool) {
			err := store.TakeAll(t.Context(), ds, out)
			for i, d := range ds {
				o := layer.Observation{Demand: d, Err: err, Admitted: admitted, Together: len(ds), Took: time.Millisecond}
				if i < len(out) {
					o.Result = out[i]
				}
				want = append(want, o)
			}
		}
		all(false)
		if !out[1].Allowed {
			t.Fatalf("%+v", out)
		}
		ds[0].Key = "new"
		all(true)
		out = out[:1]
		all(false)
		if !slices.Equal(seen, want) {
			t.Errorf("observed\n%+v\nwant\n%+v", seen, want)
		}
		if got := seen[0].Limit(); got != perMinute.Limit() {
			t.Errorf("Limit() = %v", got)
		}
		open, err := layer.NewObserved(&broken{ratelimit.FailOpen}, func(_ context.Context, o layer.Observation) { seen = append(seen, o) })
		if err != nil {
			t.Fatal(err)
		}
		_, _ = open.Take(t.Context(), unit("k"))
		if o := seen[len(seen)-1]; o.Err == nil || o.Result.Source != ratelimit.SourceOpen || o.Admitted {
			t.Errorf("undecided, where the store's policy is open: %+v", o)
		}
		_, _ = store.Take(t.Context(), ratelimit.Demand{Key: "k", N: 1})
		if o := seen[len(seen)-1]; !errors.Is(o.Err, ratelimit.ErrInvalidDemand) || o.Limit() != (ratelimit.Limit{}) {
			t.Errorf("without an algorithm: %+v", o)
		}
	})
}

// slow is a store whose calls take a millisecond.
type slow struct{ ratelimit.Store }

func (s slow) Take(ctx context.Context, d ratelimit.Demand) (ratelimit.Result, error) {
	time.Sleep(time.Millisecond)
	return s.Store.Take(ctx, d)
}

func (s slow) TakeAll(ctx context.Context, ds []ratelimit.Demand, out []ratelimit.Result) error {
	time.Sleep(time.Millisecond)
	return s.Store.TakeAll(ctx, ds, out)
}
