package decision_test

import (
	"context"
	"errors"
	"testing"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
)

// TestMayUse: a call to which a limit applies that the caller may not use is an error which names
// it, and charges nothing, of no kind; and Look shows that, unobserved.
func TestMayUse(t *testing.T) {
	observed := 0
	count := func(context.Context, ratelimit.Observation) { observed++ }
	d := newDecider(t, newStore(t), []*rules.Limit{
		with(tenantLimit("always", 10), always), tenantLimit("tenants", 10),
		with(limitOn("user", "tried", 5), shadow)},
		decision.WithObserver(count), decision.WithShadowObserver(count))
	acmeAndBob := []decision.Request{request(1, "tenant", "acme"), request(1, "user", "bob")}
	for name, opts := range map[string]decision.Options{"take": {}, "peek": {Peek: true},
		"each": {Each: true}, "force": {Force: true}, "always": {Always: true}} {
		opts.MayUse = func(limit string) bool { return limit != "tried" }
		_, err := d.Decide(t.Context(), acmeAndBob, opts)
		wrong := (*decision.RequestError)(nil)
		if !errors.Is(err, decision.ErrNotAllowed) || !errors.As(err, &wrong) ||
			wrong.Request != 1 || wrong.Limit.Name != "tried" {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, limit := range []string{"always", "tenants"} {
		if res, err := d.Look(t.Context(), limit, "acme"); err != nil || res.Remaining != 10 {
			t.Errorf("%s: %+v, %v", limit, res, err)
		}
	}
	if _, err := d.Look(t.Context(), "none", "acme"); !errors.Is(err, decision.ErrUnknownLimit) {
		t.Error(err)
	}
	if observed != 0 {
		t.Errorf("%d observations", observed)
	}
	opts := decision.Options{MayUse: func(string) bool { return true }}
	if got, err := d.Decide(t.Context(), acmeAndBob, opts); err != nil || !got.Allowed {
		t.Errorf("of all limits: %+v, %v", got, err)
	}
}
