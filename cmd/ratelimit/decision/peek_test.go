package decision_test

import (
	"errors"
	"testing"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
)

// TestPeek: a peek says what the decision after it says, and neither charges nor counts anything.
func TestPeek(t *testing.T) {
	inFlight := limitOn("call", "calls", 1)
	inFlight.Algorithm, inFlight.Rate.Window = "in-flight", 0
	limits := []*rules.Limit{
		with(tenantLimit("tenants", 10), func(l *rules.Limit) { l.Warn = .5 }),
		limitOn("user", "users", 3), with(limitOn("user", "tried", 1), shadow),
		with(limitOn("budget", "budgets", 4), always), inFlight,
	}
	bob := request(2, "tenant", "acme", "user", "bob")
	budget := request(3, "budget", "a", "tenant", "acme")
	for name, store := range map[string]ratelimit.Store{
		"together": newStore(t), "one by one": apart{newStore(t)}} {
		d := newDecider(t, store, limits)
		c := caller{t, d}
		for i, tt := range []struct {
			requests []decision.Request
			opts     decision.Options
			want     bool
		}{
			{[]decision.Request{bob}, decision.Options{}, true},
			{[]decision.Request{bob}, decision.Options{}, false},
			{[]decision.Request{acme(4), request(1, "user", "eve")}, decision.Options{}, true},
			{[]decision.Request{request(0, "user", "bob")}, decision.Options{}, true},
			{[]decision.Request{budget}, decision.Options{}, true},
			{[]decision.Request{budget}, decision.Options{}, false},
			{[]decision.Request{request(5, "budget", "b")}, decision.Options{}, false},
			{[]decision.Request{acme(9), request(1, "user", "eve")},
				decision.Options{Each: true}, false},
		} {
			peek := tt.opts
			peek.Peek = true
			before := d.Stats()
			first, again := c.decide(peek, tt.requests...), c.decide(peek, tt.requests...)
			after := d.Stats()
			if after.OneByOne = before.OneByOne; after.Decisions != before.Decisions ||
				after.Matched != before.Matched ||
				after.Limits["tenants"] != before.Limits["tenants"] ||
				after.Limits["tried"] != before.Limits["tried"] {
				t.Errorf("%s %d: counted %+v after %+v", name, i, after, before)
			}
			got := c.decide(tt.opts, tt.requests...)
			if got.Allowed != tt.want || first.Allowed != tt.want || again.Allowed != tt.want {
				t.Errorf("%s %d: %+v, %+v and %+v", name, i, first, again, got)
			}
			for j, part := range got.Parts {
				for k, s := range part.Statuses {
					p := first.Parts[j].Statuses[k]
					if p.Asked && s.Asked && (p.Allowed != s.Allowed ||
						got.Allowed && p.Warned != s.Warned ||
						s.Allowed && p.Result.Remaining != s.Result.Remaining+s.Result.Units) {
						t.Errorf("%s %d: %s: %+v before %+v", name, i, s.Limit.Name, p, s)
					}
				}
			}
		}
		// A limit that refuses for ever does not hide what is left under others.
		never := c.decide(decision.Options{Peek: true}, request(4, "user", "new", "tenant", "new"))
		for _, s := range never.Parts[0].Statuses {
			if s.Asked != (s.Limit.Name == "tenants") || never.Allowed {
				t.Errorf("%s: %+v of a peek at too many units", name, s)
			}
		}
		call := request(1, "call", "a")
		if got := c.decide(decision.Options{Peek: true}, call); !got.Allowed {
			t.Errorf("%s: a call in flight: %+v", name, got)
		}
		hold := held()
		if !c.decide(hold, call).Allowed || c.decide(decision.Options{Peek: true}, call).Allowed {
			t.Errorf("%s: a second call in flight is free", name)
		}
		hold.Peek = true
		_, err := d.Decide(t.Context(), []decision.Request{call}, hold)
		if !errors.Is(err, ratelimit.ErrInvalid) {
			t.Errorf("%s: error %v of a peek that holds, want ErrInvalid", name, err)
		}
	}
}
