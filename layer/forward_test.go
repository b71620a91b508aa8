package layer_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/conformance"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
	"github.com/truewindow/ratelimit/layer"
)

var perMinute = algorithm.SlidingLog(driver.PerMinute("minute", 7))

func unit(key string) driver.Demand {
	return driver.Demand{Key: key, Algorithm: perMinute, N: 1}
}

// wrap puts a layer around a store, and fails the test if it cannot.
type wrap func(t testing.TB, inner driver.Store) driver.Store

func checked[S driver.Store](t testing.TB, s S, err error) driver.Store {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func timeout(t testing.TB, inner driver.Store) driver.Store {
	s, err := layer.NewTimeout(inner, time.Minute)
	return checked(t, s, err)
}

func prefix(t testing.TB, inner driver.Store) driver.Store {
	s, err := layer.NewPrefix(inner, "api:")
	return checked(t, s, err)
}

func hashed(t testing.TB, inner driver.Store) driver.Store {
	s, err := layer.NewHashedKeys(inner, secret('s'))
	if err != nil {
		t.Fatal(err)
	}
	return s.WithTag(upToSlash)
}

func guarded(t testing.TB, inner driver.Store) driver.Store {
	s, err := layer.NewBreaker(inner, nil)
	return checked(t, s, err)
}

func degraded(t testing.TB, inner driver.Store) driver.Store {
	return newDegraded(t, inner, &layer.DegradedOptions{Instances: 3})
}

// leased has no leases for the limits of random runs, which compare each result with that of the
// step.
func leased(t testing.TB, inner driver.Store) driver.Store {
	return newLeased(t, inner, &layer.LeasedOptions{Loss: func(l driver.Limit) float64 {
		if slices.Contains([]string{"", "burst", "daily", "more", "most", "held"}, l.Name) {
			return 0
		}
		return 0.02
	}})
}

// TestLayersConformance: layers, each alone and several of them, keep the contract, except for what
// leases are for.
func TestLayersConformance(t *testing.T) {
	for name, around := range map[string][]wrap{ // the first is outside
		"timeout":               {timeout},
		"prefix":                {prefix},
		"hashed":                {hashed},
		"breaker":               {guarded},
		"leased":                {leased},
		"prefix,timeout,prefix": {prefix, timeout, prefix},
		"hashed,degraded,leased,breaker,timeout,prefix": {
			hashed, degraded, leased, guarded, timeout, prefix},
	} {
		if len(around) < 4 && !depth.Full {
			continue // the last has all layers
		}
		except := map[string]string{}
		if len(around) == 1 {
			for _, name := range []string{"identity/many-keys", "identity/hashed-keys",
				"op/many-records", "concurrency/many-calls"} {
				except[name] = "tried with several layers"
			}
		}
		if strings.Contains(name, "leased") {
			except["op/many-records"] = "records are ahead, so fewer fit into a log"
			except["concurrency/many-calls"] = "units in leases are taken"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel() // some cases wait
			conformance.Run(t, func(t testing.TB, now func() int64) conformance.Harness {
				memory, err := memorystore.New(&memorystore.Options{Now: now})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { memory.Close() })
				store := driver.Store(memory)
				for _, w := range slices.Backward(around) {
					store = w(t, store)
				}
				return conformance.Harness{Store: store, Close: memory.Close}
			}, &conformance.Options{Except: except})
		})
	}
}

func TestInvalidLayers(t *testing.T) {
	inner := newOutage(t)
	for name, make := range map[string]func() error{
		"Timeout of nothing": func() error {
			_, err := layer.NewTimeout(nil, time.Second)
			return err
		},
		"Timeout of no time": func() error { _, err := layer.NewTimeout(inner, 0); return err },
		"negative Timeout":   func() error { _, err := layer.NewTimeout(inner, -1); return err },
		"Prefix of nothing":  func() error { _, err := layer.NewPrefix(nil, "p"); return err },
		"empty Prefix":       func() error { _, err := layer.NewPrefix(inner, ""); return err },
		"HashedKeys of nothing": func() error {
			_, err := layer.NewHashedKeys(nil, secret('s'))
			return err
		},
		"HashedKeys without a secret": func() error {
			_, err := layer.NewHashedKeys(inner, nil)
			return err
		},
		"HashedKeys with a short secret": func() error {
			_, err := layer.NewHashedKeys(inner, secret('s')[1:])
			return err
		},
	} {
		if err := make(); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestLayersPassOn: the error of the store inside is returned as it is.
func TestLayersPassOn(t *testing.T) {
	for name, w := range map[string]wrap{"timeout": timeout, "prefix": prefix, "hashed": hashed} {
		store := w(t, broken{})
		if _, err := store.Take(t.Context(), unit("k")); err != errBroken {
			t.Errorf("%s: %v", name, err)
		}
		ds, out := []driver.Demand{unit("k"), unit("l")}, make([]driver.Result, 2)
		if err := store.TakeAll(t.Context(), ds, out); err != errBroken {
			t.Errorf("%s: %v", name, err)
		}
		if ds[0] != unit("k") || ds[1] != unit("l") {
			t.Errorf("%s: the caller's demands are now %+v", name, ds)
		}
	}
}

// errBroken must be the very one that arrives.
var errBroken = errors.Join(driver.ErrOutcomeUnknown)

// broken is a store that is unavailable. It allocates nothing.
type broken struct{}

func (broken) Take(context.Context, driver.Demand) (driver.Result, error) {
	return driver.Result{}, errBroken
}

func (broken) TakeAll(context.Context, []driver.Demand, []driver.Result) error {
	return errBroken
}

// hanging is a store that does nothing until the context ends.
type hanging struct{}

func (hanging) Take(ctx context.Context, _ driver.Demand) (driver.Result, error) {
	<-ctx.Done()
	return driver.Result{}, errors.Join(driver.ErrOutcomeUnknown, ctx.Err())
}

func (s hanging) TakeAll(ctx context.Context, _ []driver.Demand, _ []driver.Result) error {
	_, err := s.Take(ctx, driver.Demand{})
	return err
}

// TestTimeout: a call takes as long as the timeout or the context says, whichever is less.
func TestTimeout(t *testing.T) {
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
				store, err := layer.NewTimeout(hanging{}, after)
				if err != nil {
					t.Fatal(err)
				}
				for name, call := range map[string]func(ctx context.Context) error{
					"Take": func(ctx context.Context) error {
						_, err := store.Take(ctx, unit("k"))
						return err
					},
					"TakeAll": func(ctx context.Context) error {
						return store.TakeAll(ctx, nil, nil)
					},
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
	driver.Store
	keys []string
}

func (s *recorder) Take(ctx context.Context, d driver.Demand) (driver.Result, error) {
	s.keys = append(s.keys, d.Key)
	return s.Store.Take(ctx, d)
}

func (s *recorder) TakeAll(
	ctx context.Context, ds []driver.Demand, out []driver.Result,
) error {
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
	ds := []driver.Demand{unit("k"), unit("api:k"), unit("\x00{")}
	out := make([]driver.Result, 3)
	if err := store.TakeAll(t.Context(), ds, out); err != nil || out[0].Remaining != 5 ||
		out[1].Remaining != 6 {
		t.Fatalf("%+v, %v", out, err)
	}
	if ds[0].Key != "k" {
		t.Errorf("the caller's demand is for %q now", ds[0].Key)
	}
	if want := []string{"api:k", "api:k", "api:api:k",
		"api:\x00{"}; !slices.Equal(inner.keys, want) {
		t.Errorf("keys inside %q, want %q", inner.keys, want)
	}
	if _, err := store.Take(t.Context(), unit("")); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("an empty key: %v", err)
	}
	if err := store.TakeAll(t.Context(), []driver.Demand{unit("k"), unit("")},
		make([]driver.Result, 2)); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("an empty key among others: %v", err)
	}
}
