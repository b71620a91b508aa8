package decision_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
)

// TestUseWhileDeciding: callers admit exactly the larger of two limits while sets that have one or
// the other are put in force all the time.
func TestUseWhileDeciding(t *testing.T) {
	const small, large, callers = 300, 500, 8
	d := newDecider(t, newStore(t), []*rules.Limit{
		tenantLimit("tenants", small), limitOn("user", "users", 1<<30)})
	users := limitOn("user", "users", 1<<30)
	sets := []*rules.Set{
		compile(t, tenantLimit("tenants", small), users),
		compile(t, users, tenantLimit("tenants", large)),
	}
	stop := make(chan struct{})
	var using, deciding sync.WaitGroup
	using.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			if err := d.Use(sets[i%len(sets)]); err != nil {
				t.Error(err)
			}
		}
	})
	var admitted, calls atomic.Int64
	for range callers {
		deciding.Go(func() {
			bob := []decision.Request{request(1, "tenant", "acme", "user", "bob")}
			for range 4 * large / callers {
				got, err := d.Decide(context.Background(), bob, decision.Options{})
				if err != nil || len(got.Parts[0].Statuses) != 2 {
					t.Errorf("%+v, %v", got, err)
					return
				}
				if calls.Add(1); got.Allowed {
					admitted.Add(1)
				}
			}
		})
	}
	deciding.Wait()
	close(stop)
	using.Wait()
	if err := d.Use(sets[1]); err != nil {
		t.Fatal(err)
	}
	c := caller{t, d}
	used := large - c.decide(decision.Options{}, request(0, "tenant", "acme")).
		Parts[0].Statuses[0].Result.Remaining
	if n := admitted.Load(); n != used || n < small || n > large {
		t.Errorf("%d admitted and %d recorded, want the same from %d to %d",
			n, used, small, large)
	}
	for range large - used {
		c.take(true, acme(1))
	}
	c.take(false, acme(1))
	if got := d.Stats(); got.Decisions != calls.Load()+large-used+2 {
		t.Errorf("%d decisions counted, want %d", got.Decisions, calls.Load()+large-used+2)
	}
}

// TestConcurrentCalls: callers that ask for several keys at once admit what the limits say.
func TestConcurrentCalls(t *testing.T) {
	const most, callers = 400, 8
	d := newDecider(t, newStore(t), []*rules.Limit{
		tenantLimit("tenants", most), limitOn("user", "users", most)})
	var admitted atomic.Int64
	var deciding sync.WaitGroup
	for range callers {
		deciding.Go(func() {
			both := []decision.Request{acme(1), request(1, "user", "bob"), acme(1)}
			for range most / 4 {
				got, err := d.Decide(context.Background(), both, decision.Options{})
				if err != nil {
					t.Error(err)
					return
				}
				if got.Allowed {
					admitted.Add(1)
				}
			}
		})
	}
	deciding.Wait()
	if n := admitted.Load(); n != most/2 {
		t.Errorf("%d admitted, want %d", n, most/2)
	}
	caller{t, d}.remaining(request(0, "user", "bob"), 0, most/2)
}

func TestUseKeepsTheSet(t *testing.T) {
	d := newDecider(t, newStore(t), []*rules.Limit{tenantLimit("tenants", 1)})
	before := d.Set()
	if err := d.Use(nil); !errors.Is(err, ratelimit.ErrInvalid) || d.Set() != before {
		t.Errorf("without a set: error %v, want ErrInvalid and the old set", err)
	}
	caller{t, d}.take(true, acme(1))
	caller{t, d}.take(false, acme(1))
}

// TestUseOfOtherPolicy: a limit that changes only in what failures or refusals do to calls has
// limiters of its new options.
func TestUseOfOtherPolicy(t *testing.T) {
	change := func(f func(*rules.Limit)) *rules.Set {
		return compile(t, with(tenantLimit("tenants", 1), f))
	}
	d := decision.New(down{})
	for _, onFailure := range []string{"open", "closed", "open"} {
		if err := d.Use(change(func(l *rules.Limit) { l.OnFailure = onFailure })); err != nil {
			t.Fatal(err)
		}
		got, err := d.Decide(t.Context(), []decision.Request{acme(1)}, decision.Options{})
		if open := err == nil && got.Allowed; open != (onFailure == "open") {
			t.Errorf("on_failure %s: %+v, %v", onFailure, got, err)
		}
	}
	observed := make(map[string]int)
	see := func(name string) func(context.Context, ratelimit.Observation) {
		return func(context.Context, ratelimit.Observation) { observed[name]++ }
	}
	d = decision.New(newStore(t), decision.WithObserver(see("enforced")),
		decision.WithShadowObserver(see("shadow")))
	for _, f := range []func(*rules.Limit){shadow, func(*rules.Limit) {}, shadow} {
		if err := d.Use(change(f)); err != nil {
			t.Fatal(err)
		}
		caller{t, d}.decide(decision.Options{}, acme(1))
	}
	if observed["enforced"] != 1 || observed["shadow"] != 2 {
		t.Errorf("observed %v, want one enforced decision between two of shadow mode", observed)
	}
}

// TestCountsOutliveSets: the counts of a limit go on until a set does not have it.
func TestCountsOutliveSets(t *testing.T) {
	limit := func(units int64) *rules.Set {
		return compile(t, with(tenantLimit("tenants", units), func(l *rules.Limit) { l.Warn = .5 }))
	}
	d := decision.New(newStore(t))
	c := caller{t, d}
	for i, set := range []*rules.Set{limit(2), limit(3)} {
		if err := d.Use(set); err != nil {
			t.Fatal(err)
		}
		c.take(true, acme(1))
		if got := d.Stats().Limits["tenants"].Warned; got != int64(i+1) {
			t.Errorf("%d warnings, want %d", got, i+1)
		}
	}
	if err := d.Use(compile(t, limitOn("user", "users", 1))); err != nil {
		t.Fatal(err)
	}
	if got := d.Stats().Limits; len(got) != 1 || got["users"] != (decision.LimitStats{}) {
		t.Errorf("counts %+v, want those of the set", got)
	}
}

// TestObservers: those of enforced limits do not see what a shadow decides.
func TestObservers(t *testing.T) {
	seen := make(map[string]int)
	see := func(name string) decision.Option {
		observe := func(_ context.Context, o ratelimit.Observation) {
			seen[name+" "+o.Limits[0].Name]++
		}
		if name == "shadow" {
			return decision.WithShadowObserver(observe)
		}
		return decision.WithObserver(observe)
	}
	d := newDecider(t, newStore(t), []*rules.Limit{
		tenantLimit("tenants", 5), with(tenantLimit("tried", 5), shadow)},
		see("first"), see("second"), see("shadow"))
	caller{t, d}.take(true, acme(1))
	override := acme(1)
	override.Override = &rules.Rate{Units: 9, Window: time.Minute}
	caller{t, d}.take(true, override)
	if len(seen) != 3 || seen["first tenants"] != 2 || seen["second tenants"] != 2 ||
		seen["shadow tried"] != 2 {
		t.Errorf("observed %v", seen)
	}
}

// TestManyOverrides: clients choose overrides, so a set keeps only some of their limiters.
func TestManyOverrides(t *testing.T) {
	d := newDecider(t, newStore(t), []*rules.Limit{tenantLimit("tenants", 5)})
	c := caller{t, d}
	for i := range int64(3 * decision.MaxOverrides) {
		r := acme(0)
		r.Override = &rules.Rate{Units: i + 1, Window: time.Minute}
		c.take(true, r)
	}
	if n := d.Overrides(); n != decision.MaxOverrides {
		t.Errorf("%d limiters of overrides are kept, want %d", n, decision.MaxOverrides)
	}
}
