package decision_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
)

// TestTakes: what admits or refuses a call is a take for observers, however it is asked, and what
// is charged whether it fits or not is one force.
func TestTakes(t *testing.T) {
	var seen []string
	observe := decision.WithObserver(decision.Takes(
		func(_ context.Context, o ratelimit.Observation) {
			outcome := "refused"
			if o.Results[0].Allowed {
				outcome = "admitted"
			}
			seen = append(seen, fmt.Sprint(o.Op, " ", o.N, " ", o.Limits[0].Name, " ", outcome))
		}))
	limits := []*rules.Limit{tenantLimit("tenants", 3), limitOn("user", "users", 1),
		limitOn("none", "none", 0)}
	bob := request(1, "tenant", "acme", "user", "bob")
	d := newDecider(t, apart{newStore(t)}, limits, observe)
	c := caller{t, d}
	peek := decision.Options{Peek: true}
	for _, tt := range []struct {
		what string
		do   func()
		want []string
	}{
		{"one by one", func() { c.take(true, bob) },
			[]string{"peek 1 tenants admitted", "take 1 users admitted",
				"take 1 tenants admitted"}},
		{"a peek ahead that admits", func() { c.take(false, bob) },
			[]string{"peek 1 tenants admitted", "take 1 users refused"}},
		{"no units", func() { c.take(true, acme(0)) }, []string{"take 0 tenants admitted"}},
		{"a peek", func() { c.decide(peek, bob) },
			[]string{"peek 1 tenants admitted", "peek 1 users refused"}},
		{"a peek that admits", func() {
			if _, err := d.Decide(
				decision.Admitting(t.Context()), []decision.Request{bob}, peek); err != nil {
				t.Fatal(err)
			}
		}, []string{"take 0 tenants admitted", "take 0 users refused"}},
		{"a limit of no units", func() { c.take(false, request(1, "none", "a")) },
			[]string{"take 1 none refused"}},
		{"a peek at it", func() { c.decide(peek, request(1, "none", "a")) },
			[]string{"peek 1 none refused"}},
		{"too many units", func() { c.take(false, acme(4)) }, []string{"take 4 tenants refused"}},
		{"too many held", func() {
			c.decide(decision.Options{Hold: new(time.Duration)}, acme(4))
		}, []string{"hold 4 tenants refused"}},
		{"a charge", func() { c.decide(decision.Options{Force: true}, acme(2), acme(9)) },
			[]string{"force 11 tenants admitted"}},
		{"a charge that does not fit", func() {
			c.decide(decision.Options{Force: true}, acme(2))
		}, []string{"force 2 tenants admitted"}},
	} {
		seen = nil
		if tt.do(); !slices.Equal(seen, tt.want) {
			t.Errorf("%s: %q, want %q", tt.what, seen, tt.want)
		}
	}
}
