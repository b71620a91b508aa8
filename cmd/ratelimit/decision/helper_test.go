package decision_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
	"github.com/truewindow/ratelimit/driver"
)

func newStore(t testing.TB) *memorystore.Store {
	t.Helper()
	store, err := memorystore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

func newLimiter(t testing.TB, store ratelimit.Store, a driver.Algorithm) *ratelimit.Limiter {
	t.Helper()
	l, err := ratelimit.New(store, a)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func compile(t testing.TB, limits ...*rules.Limit) *rules.Set {
	t.Helper()
	set, err := rules.Compile(limits, nil)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func newDecider(
	t testing.TB, store ratelimit.Store, limits []*rules.Limit, options ...decision.Option,
) *decision.Decider {
	t.Helper()
	d := decision.New(store, options...)
	if err := d.Use(compile(t, limits...)); err != nil {
		t.Fatal(err)
	}
	return d
}

// limitOn returns a limit of so many units a minute for each value of an entry.
func limitOn(entry, name string, units int64) *rules.Limit {
	return &rules.Limit{
		Name: name, Key: []string{entry}, Algorithm: "log",
		When: []rules.Condition{{Entry: entry, Prefix: true}},
		Rate: rules.Rate{Units: units, Window: time.Minute},
	}
}

func tenantLimit(name string, units int64) *rules.Limit { return limitOn("tenant", name, units) }

func with(l *rules.Limit, change func(*rules.Limit)) *rules.Limit {
	change(l)
	return l
}

func shadow(l *rules.Limit) { l.Shadow = true }
func always(l *rules.Limit) { l.Always = true }
func holds(l *rules.Limit)  { l.Holds = time.Minute }

// request returns a request for n units of a descriptor of names and values.
func request(n int64, entries ...string) decision.Request {
	r := decision.Request{N: n}
	for i := 0; i < len(entries); i += 2 {
		r.Descriptor = append(r.Descriptor, rules.Entry{Name: entries[i], Value: entries[i+1]})
	}
	return r
}

func acme(n int64) decision.Request { return request(n, "tenant", "acme") }

// A caller decides, and expects no error.
type caller struct {
	testing.TB
	*decision.Decider
}

func (c caller) decide(opts decision.Options, requests ...decision.Request) decision.Decision {
	c.Helper()
	got, err := c.Decide(context.Background(), requests, opts)
	if err != nil {
		c.Fatal(err)
	}
	if len(got.Parts) != len(requests) {
		c.Fatalf("%d parts of %d requests", len(got.Parts), len(requests))
	}
	return got
}

// take decides requests without options, and expects them to be admitted or not.
func (c caller) take(want bool, requests ...decision.Request) decision.Decision {
	c.Helper()
	got := c.decide(decision.Options{}, requests...)
	if got.Allowed != want {
		c.Fatalf("allowed %t, want %t: %+v", got.Allowed, want, got)
	}
	return got
}

// remaining expects so many units to be free under the limit at an index of those of a request.
func (c caller) remaining(r decision.Request, at int, want int64) {
	c.Helper()
	r.N = 0
	got := c.decide(decision.Options{}, r).Parts[0].Statuses[at].Result.Remaining
	if got != want {
		c.Errorf("%d units are free under limit %d of %v, want %d", got, at, r.Descriptor, want)
	}
}

// apart is a store that decides keys together only if they are equal, as a cluster does.
type apart struct{ ratelimit.Store }

func (s apart) TakeAll(ctx context.Context, ds []driver.Demand, out []driver.Result) error {
	for _, d := range ds {
		if d.Key != ds[0].Key {
			return errors.ErrUnsupported
		}
	}
	return s.Store.TakeAll(ctx, ds, out)
}

// down is a store that is unavailable.
type down struct{}

func (down) Take(context.Context, driver.Demand) (driver.Result, error) {
	return driver.Result{}, driver.ErrUnavailable
}

func (down) TakeAll(context.Context, []driver.Demand, []driver.Result) error {
	return driver.ErrUnavailable
}
