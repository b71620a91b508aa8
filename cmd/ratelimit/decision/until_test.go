package decision_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
)

// TestUntilKeepsCounts: when an exception ends, what it admitted counts under the rate that
// follows, and nothing is loaded. A refusal says the wait under the rate of its time.
func TestUntilKeepsCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := time.Now().Add(90 * time.Second)
		units := with(tenantLimit("units", 2), func(l *rules.Limit) {
			l.Except = []rules.Exception{{Until: end,
				Rate: rules.Rate{Units: 5, Window: time.Minute},
				When: []rules.Condition{{Entry: "tenant", Pattern: "acme"}}}}
		})
		stopped := with(tenantLimit("stopped", 9), func(l *rules.Limit) {
			l.When = []rules.Condition{{Entry: "tenant", Pattern: "globex"}}
			l.Except = []rules.Exception{{Until: end,
				When: []rules.Condition{{Entry: "user", Pattern: "bob"}}}}
		})
		c := caller{t, newDecider(t, newStore(t), []*rules.Limit{units, stopped})}
		bob := request(1, "tenant", "globex", "user", "bob")
		if s := c.take(false, bob).Parts[0].Statuses[1]; !s.Never {
			t.Errorf("a rate of 0 refuses with %+v", s)
		}
		time.Sleep(60 * time.Second)
		c.take(true, acme(5))
		if s := c.take(false, acme(1)).Parts[0].Statuses[0]; s.Result.RetryAfter != time.Minute {
			t.Errorf("the wait is %v", s.Result.RetryAfter)
		}
		time.Sleep(30*time.Second - time.Microsecond)
		if s := c.take(false, acme(1)).Parts[0].Statuses[0]; s.Rate.Units != 5 {
			t.Errorf("the rate is %v before the end", s.Rate)
		}
		c.take(false, bob)
		time.Sleep(time.Microsecond)
		s := c.take(false, acme(1)).Parts[0].Statuses[0]
		if s.Rate.Units != 2 || s.Result.Remaining != 0 || s.Result.RetryAfter != 30*time.Second {
			t.Errorf("at the end: %+v", s)
		}
		c.take(true, bob)
		time.Sleep(30 * time.Second)
		c.take(true, acme(2))
		c.take(false, acme(1))
		if got := c.decide(decision.Options{Peek: true}, acme(1)); got.Allowed {
			t.Errorf("a peek says %+v", got)
		}
	})
}
