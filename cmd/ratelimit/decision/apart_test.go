package decision_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
	"github.com/truewindow/ratelimit/driver"
)

// TestOneByOne: a store that cannot decide keys together decides them one by one.
func TestOneByOne(t *testing.T) {
	failed := 0
	d := newDecider(t, apart{newStore(t)}, []*rules.Limit{
		limitOn("user", "users", 10), tenantLimit("tenants", 2),
		with(tenantLimit("again", 9), holds)},
		decision.WithObserver(func(_ context.Context, o ratelimit.Observation) {
			if o.Err != nil {
				failed++
			}
		}))
	c := caller{t, d}
	bob := request(1, "tenant", "acme", "user", "bob")
	c.take(true, bob)
	c.take(true, bob)
	c.remaining(acme(0), 0, 0)
	c.remaining(request(0, "user", "bob"), 0, 8)
	// A limit that is used up is found before the others are charged.
	got := c.take(false, bob)
	if statuses := got.Parts[0].Statuses; !statuses[0].Allowed || statuses[1].Allowed {
		t.Errorf("%+v", got)
	}
	c.remaining(request(0, "user", "bob"), 0, 8)
	if got := d.Stats().OneByOne; got != 3 {
		t.Errorf("%d calls one by one, want 3", got)
	}
	// If the first limit refuses, the others are not charged.
	c.take(true, request(8, "user", "bob"))
	c.take(false, request(1, "tenant", "third", "user", "bob"))
	c.remaining(request(0, "tenant", "third"), 0, 2)
	if got := d.Stats().OneByOne; got != 4 {
		t.Errorf("%d calls one by one, want 4", got)
	}
	// Limits of one key are decided together.
	c.take(true, request(2, "tenant", "other"))
	if got := d.Stats().OneByOne; got != 4 {
		t.Errorf("%d calls one by one, want 4", got)
	}
	if failed > 0 {
		t.Errorf("the observer saw %d errors", failed)
	}
	for name, opts := range map[string]decision.Options{
		"a hold": held(), "together": {Together: true}, "a peek": {Together: true, Peek: true},
	} {
		_, err := d.Decide(t.Context(), []decision.Request{bob}, opts)
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: error %v, want ErrUnsupported", name, err)
		}
	}
	c.remaining(request(0, "user", "bob"), 0, 0)
}

// meeting is a store whose first peeks wait for each other.
type meeting struct {
	ratelimit.Store
	left  *atomic.Int64
	peeks *sync.WaitGroup
}

func (s meeting) Take(ctx context.Context, d driver.Demand) (driver.Result, error) {
	res, err := s.Store.Take(ctx, d)
	if d.Op == driver.OpPeek && s.left.Add(-1) >= 0 {
		s.peeks.Done()
		s.peeks.Wait()
	}
	return res, err
}

// TestNarrowestFirst: of calls that all find room and for which there is none, those that a narrow
// limit refuses charge no wider one, in whichever order the limits are.
func TestNarrowestFirst(t *testing.T) {
	users, tenants := limitOn("user", "users", 3), tenantLimit("tenants", 300)
	narrow := limitOn("group", "groups", 200)
	for _, limits := range [][]*rules.Limit{
		{tenants, users, narrow}, {users, narrow, tenants}, {narrow, tenants, users},
	} {
		const callers = 8
		store := meeting{apart{newStore(t)}, new(atomic.Int64), new(sync.WaitGroup)}
		store.left.Store(callers)
		store.peeks.Add(callers)
		d := newDecider(t, store, limits)
		bob := request(1, "tenant", "acme", "user", "bob", "group", "g")
		var calls sync.WaitGroup
		for range callers {
			calls.Go(func() { caller{t, d}.decide(decision.Options{}, bob) })
		}
		calls.Wait()
		c := caller{t, newDecider(t, store.Store, limits)}
		c.remaining(request(0, "user", "bob"), 0, 0)
		c.remaining(acme(0), 0, 297)
		c.remaining(request(0, "group", "g"), 0, 197)
	}
}
