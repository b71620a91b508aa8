package decision_test

import (
	"context"
	"errors"
	"testing"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
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
	if statuses := got.Parts[0].Statuses; statuses[0].Asked || statuses[1].Allowed {
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
