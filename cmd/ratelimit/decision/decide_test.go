package decision_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
	"github.com/truewindow/ratelimit/driver"
)

func TestAllOrNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := caller{t, newDecider(t, newStore(t), []*rules.Limit{
			tenantLimit("tenants", 10), limitOn("user", "users", 2)})}
		bob := request(2, "tenant", "acme", "user", "bob")
		c.take(true, bob)
		got := c.take(false, request(1, "tenant", "acme", "user", "bob"))
		statuses := got.Parts[0].Statuses
		if !statuses[0].Allowed || statuses[1].Allowed ||
			statuses[1].Result.RetryAfter != time.Minute || !statuses[0].Asked {
			t.Errorf("statuses: %+v", statuses)
		}
		c.remaining(acme(0), 0, 8)
		// The other request of a call is not charged either.
		c.take(false, acme(1), request(1, "user", "bob"))
		c.remaining(acme(0), 0, 8)
		time.Sleep(time.Minute)
		c.take(true, acme(1), request(1, "user", "bob"))
		c.remaining(acme(0), 0, 9)
	})
}

func TestUnitsOfOneKeyAreAdded(t *testing.T) {
	c := caller{t, newDecider(t, newStore(t), []*rules.Limit{tenantLimit("tenants", 10)})}
	got := c.take(true, acme(3), request(1, "tenant", "other"), acme(4))
	first, third := got.Parts[0].Statuses[0], got.Parts[2].Statuses[0]
	if first != third || first.Result.Remaining != 3 || first.Result.Units != 7 {
		t.Errorf("statuses %+v and %+v, want the same with 3 units left", first, third)
	}
	if got := c.take(false, acme(2), acme(2)); got.Parts[0].Statuses[0].Never {
		t.Error("4 of 10 units will never be admitted")
	}
	if got := c.take(false, acme(6), acme(5)); !got.Parts[1].Statuses[0].Never {
		t.Error("11 of 10 units will be admitted")
	}
	c.remaining(acme(0), 0, 3)
}

// TestUnitsOfOneHistory: requests of one key and two plans count in one history, so the plan that
// admits less decides about both.
func TestUnitsOfOneHistory(t *testing.T) {
	plans := with(tenantLimit("tenants", 10), func(l *rules.Limit) {
		l.By = &rules.Plans{Entry: "plan", Rates: map[string]rules.Rate{
			"pro": {Units: 100, Window: time.Minute}, "free": {Unlimited: true}}}
	})
	c := caller{t, newDecider(t, newStore(t), []*rules.Limit{plans})}
	pro := request(5, "tenant", "acme", "plan", "pro")
	unlimited := request(90, "tenant", "acme", "plan", "free")
	if got := c.take(true, pro); got.Parts[0].Statuses[0].Result.Remaining != 95 {
		t.Errorf("%+v, want 95 units left", got)
	}
	c.take(true, unlimited)
	c.take(false, pro, acme(1))
	got := c.take(true, unlimited, pro).Parts[0].Statuses[0]
	if got.Rate.Units != 100 || got.Result.Remaining != 0 {
		t.Errorf("%+v, want the 95 units under the pro rate", got)
	}
}

func TestNever(t *testing.T) {
	for name, test := range map[string]struct {
		limit *rules.Limit
		n     int64
	}{
		"no units":      {limitOn("user", "users", 0), 1},
		"no units, ask": {limitOn("user", "users", 0), 0},
		"too many":      {limitOn("user", "users", 5), 6},
	} {
		t.Run(name, func(t *testing.T) {
			c := caller{t, newDecider(t, newStore(t), []*rules.Limit{
				tenantLimit("tenants", 10), test.limit})}
			got := c.take(false, request(test.n, "tenant", "acme", "user", "bob"))
			other, never := got.Parts[0].Statuses[0], got.Parts[0].Statuses[1]
			if never.Allowed || !never.Never || never.Asked || never.Result.Allowed ||
				never.Result.RetryAfter != 0 {
				t.Errorf("the limit: %+v", never)
			}
			if !other.Allowed || other.Asked || other.Result.Limit.Max != 10 {
				t.Errorf("the other limit: %+v", other)
			}
			c.remaining(acme(0), 0, 10)
		})
	}
}

// TestNeverAsksNoStore: a suspended tenant is refused while the store is unavailable.
func TestNeverAsksNoStore(t *testing.T) {
	c := caller{t, newDecider(t, down{}, []*rules.Limit{
		tenantLimit("tenants", 0), limitOn("user", "users", 9)})}
	bob := request(1, "tenant", "acme", "user", "bob")
	c.take(false, bob)
	if c.decide(decision.Options{Peek: true}, bob).Allowed {
		t.Error("a peek says that a suspended tenant is admitted")
	}
	unlimited := with(tenantLimit("tenants", 0), func(l *rules.Limit) {
		l.Rate = rules.Rate{Unlimited: true}
	})
	c = caller{t, newDecider(t, down{}, []*rules.Limit{unlimited})}
	got := c.take(true, acme(1<<50)).Parts[0].Statuses[0]
	if got.Result.Remaining != driver.MaxUnits || got.Asked || !got.Result.Allowed {
		t.Errorf("unlimited: %+v", got)
	}
}

func TestAsk(t *testing.T) {
	c := caller{t, newDecider(t, newStore(t), []*rules.Limit{tenantLimit("tenants", 2)})}
	for range 5 {
		c.take(true, acme(0))
	}
	c.take(true, acme(2))
	c.take(false, acme(0))
	// A request with units and one without, of one key, are one request.
	c.take(false, acme(0), acme(1))
}

func TestReached(t *testing.T) {
	theirs := decision.Options{Reached: true}
	for _, algorithm := range []string{"log", "fixed", "counter", "month"} {
		t.Run(algorithm, func(t *testing.T) {
			limit := with(tenantLimit("tenants", 2), always)
			limit.Algorithm = algorithm
			c := caller{t, newDecider(t, newStore(t), []*rules.Limit{limit})}
			for taken := range int64(4) {
				got := c.decide(theirs, acme(0))
				res := got.Parts[0].Statuses[0].Result
				if got.Allowed != (taken <= 2) || res.Limit.Max != 2 ||
					res.Remaining != max(0, 2-taken) {
					t.Errorf("after %d of 2 units: %+v", taken, got)
				}
				c.decide(theirs, acme(1))
			}
		})
	}
	bucket := tenantLimit("tenants", 2)
	bucket.Algorithm = "bucket"
	c := caller{t, newDecider(t, newStore(t), []*rules.Limit{bucket})}
	c.take(true, acme(2))
	if c.decide(theirs, acme(0)).Allowed {
		t.Error("an empty bucket has a unit")
	}
}

func TestEach(t *testing.T) {
	each := decision.Options{Each: true}
	c := caller{t, newDecider(t, newStore(t), []*rules.Limit{
		tenantLimit("tenants", 10), limitOn("user", "users", 1)})}
	c.take(true, request(1, "user", "bob"))
	got := c.decide(each, request(1, "user", "bob"), acme(1), acme(2))
	if got.Allowed || got.Parts[0].Statuses[0].Allowed || !got.Parts[1].Statuses[0].Allowed {
		t.Errorf("%+v", got)
	}
	// Requests of one key are decided one after the other.
	if a, b := got.Parts[1].Statuses[0].Result.Remaining,
		got.Parts[2].Statuses[0].Result.Remaining; a != 9 || b != 7 {
		t.Errorf("%d and then %d units are left, want 9 and 7", a, b)
	}
	// One request is all or none nevertheless.
	if c.decide(each, request(1, "tenant", "acme", "user", "bob")).Allowed {
		t.Error("bob's second unit was admitted")
	}
	c.remaining(acme(0), 0, 7)
}

func TestShadow(t *testing.T) {
	tried := with(tenantLimit("tried", 2), shadow)
	d := newDecider(t, newStore(t), []*rules.Limit{tenantLimit("tenants", 4), tried})
	c := caller{t, d}
	for taken := range int64(4) {
		got := c.take(true, acme(1)).Parts[0].Statuses[1]
		if !got.Shadow || !got.Asked || got.Allowed != (taken < 2) {
			t.Errorf("after %d of 2 units: %+v", taken, got)
		}
	}
	// What an enforced limit refuses does not count.
	if got := c.take(false, acme(1)).Parts[0].Statuses[1]; got.Asked || !got.Allowed {
		t.Errorf("beside a refusal: %+v", got)
	}
	// More than it ever admits.
	d = newDecider(t, newStore(t), []*rules.Limit{tenantLimit("tenants", 4), tried})
	c = caller{t, d}
	if got := c.take(true, acme(3)).Parts[0].Statuses[1]; got.Allowed || !got.Never {
		t.Errorf("3 of 2 units: %+v", got)
	}
	if got := d.Stats().Limits["tried"].ShadowRefused; got != 1 {
		t.Errorf("%d refusals of the shadow, want 1", got)
	}
}

// TestShadowDoesNotKeepOthers: a shadow that is asked whether a unit is free, and has none, is not
// among the limits that have to admit.
func TestShadowDoesNotKeepOthers(t *testing.T) {
	c := caller{t, newDecider(t, newStore(t), []*rules.Limit{
		with(tenantLimit("tried", 1), shadow), limitOn("user", "users", 5)})}
	c.take(true, acme(1))
	got := c.take(true, acme(0), request(1, "user", "bob"))
	if got.Parts[0].Statuses[0].Allowed {
		t.Errorf("%+v, want a refusal of the shadow", got)
	}
	c.remaining(request(0, "user", "bob"), 0, 4)
}

// TestShadowFails: a shadow on a store that fails changes nothing.
func TestShadowFails(t *testing.T) {
	free := with(tenantLimit("tenants", 0), func(l *rules.Limit) { l.Rate.Unlimited = true })
	c := caller{t, newDecider(t, down{},
		[]*rules.Limit{free, with(tenantLimit("tried", 2), shadow)})}
	if got := c.take(true, acme(1)).Parts[0].Statuses[1]; got.Asked || !got.Allowed {
		t.Errorf("%+v", got)
	}
}

func TestAlways(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := with(tenantLimit("budget", 10), always)
		c := caller{t, newDecider(t, newStore(t), []*rules.Limit{
			budget, limitOn("user", "users", 1)})}
		check := func(got decision.Decision, allowed bool, left int64, retry time.Duration) {
			t.Helper()
			s := got.Parts[0].Statuses[0]
			if s.Allowed != allowed || s.Result.Remaining != left || !s.Asked ||
				s.Result.RetryAfter != retry {
				t.Errorf("%+v, want allowed %t with %d left, again in %v", s, allowed, left, retry)
			}
		}
		bob := request(4, "tenant", "acme", "user", "bob")
		bob.N = 1
		check(c.take(true, bob), true, 9, 0)
		check(c.take(false, bob), true, 8, 0) // another limit refuses
		check(c.take(true, acme(8)), true, 0, 0)
		c.take(false, acme(0)) // asks
		check(c.take(false, acme(3)), false, 0, time.Minute)
		time.Sleep(time.Minute - time.Microsecond)
		c.take(false, acme(0))
		time.Sleep(time.Microsecond)
		c.remaining(acme(0), 0, 10)
		// More than the limit ever admits is recorded too.
		got := c.take(false, acme(25))
		check(got, false, 0, 0)
		if !got.Parts[0].Statuses[0].Never {
			t.Error("25 of 10 units are admitted later")
		}
		c.take(false, acme(0))
		// If it is exceeded, the others are not charged.
		eve := request(1, "tenant", "acme", "user", "eve")
		c.take(false, eve)
		c.remaining(request(0, "user", "eve"), 0, 1)
	})
}

func TestAlwaysTooMany(t *testing.T) {
	c := newDecider(t, newStore(t), []*rules.Limit{with(tenantLimit("budget", 10), always)})
	_, err := c.Decide(t.Context(), []decision.Request{acme(driver.MaxUnits + 1)},
		decision.Options{})
	if !errors.Is(err, ratelimit.ErrInvalid) {
		t.Errorf("error %v, want ErrInvalid", err)
	}
}

func TestReplaces(t *testing.T) {
	special := with(limitOn("user", "special", 100), func(l *rules.Limit) {
		l.Replaces = []string{"tenants"}
	})
	c := caller{t, newDecider(t, newStore(t), []*rules.Limit{tenantLimit("tenants", 2), special})}
	got := c.take(true, acme(5), request(5, "user", "bob"))
	if len(got.Parts[0].Statuses) != 0 || len(got.Parts[1].Statuses) != 1 {
		t.Errorf("%+v, want only the special limit", got)
	}
	c.take(false, acme(5))
}

// TestReplacesUnlimited: a limit that admits everything is not replaced.
func TestReplacesUnlimited(t *testing.T) {
	all := with(tenantLimit("all", 0), func(l *rules.Limit) {
		l.Rate = rules.Rate{Unlimited: true}
	})
	special := with(limitOn("user", "special", 100), func(l *rules.Limit) {
		l.Replaces = []string{"all"}
	})
	c := caller{t, newDecider(t, newStore(t), []*rules.Limit{all, special})}
	got := c.take(true, acme(5), request(5, "user", "bob"))
	if len(got.Parts[0].Statuses) != 1 || !got.Parts[0].Statuses[0].Rate.Unlimited {
		t.Errorf("%+v, want the limit that admits everything too", got)
	}
}

func TestWarned(t *testing.T) {
	limit := with(tenantLimit("tenants", 100), func(l *rules.Limit) { l.Warn = .55 })
	d := newDecider(t, newStore(t), []*rules.Limit{limit})
	c := caller{t, d}
	warned := func(r decision.Request) bool {
		return c.decide(decision.Options{}, r).Parts[0].Statuses[0].Warned
	}
	if warned(acme(54)) || !warned(acme(1)) || !warned(acme(0)) || !warned(acme(90)) {
		t.Error("warned before 55 of 100 units, or not from there on")
	}
	if got := d.Stats().Limits["tenants"].Warned; got != 3 {
		t.Errorf("%d warnings, want 3", got)
	}
}

func TestOnFailure(t *testing.T) {
	open := with(tenantLimit("open", 1), func(l *rules.Limit) { l.OnFailure = "open" })
	closed := with(tenantLimit("closed", 1), func(l *rules.Limit) { l.OnFailure = "closed" })
	for name, test := range map[string]struct {
		policy ratelimit.Policy
		limits []*rules.Limit
		admits bool
	}{
		"default":            {ratelimit.FailClosed, []*rules.Limit{tenantLimit("a", 1)}, false},
		"of the service":     {ratelimit.FailOpen, []*rules.Limit{tenantLimit("a", 1)}, true},
		"open":               {ratelimit.FailClosed, []*rules.Limit{open}, true},
		"closed":             {ratelimit.FailOpen, []*rules.Limit{closed}, false},
		"one of two is open": {ratelimit.FailOpen, []*rules.Limit{open, closed}, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDecider(t, down{}, test.limits, decision.WithPolicy(test.policy))
			got, err := d.Decide(t.Context(), []decision.Request{acme(1)}, decision.Options{})
			if !test.admits {
				if !errors.Is(err, ratelimit.ErrUnavailable) {
					t.Errorf("%+v, %v, want ErrUnavailable", got, err)
				}
				return
			}
			if err != nil || got.Parts[0].Statuses[0].Result.Source != ratelimit.SourceOpen {
				t.Errorf("%+v, %v, want an admission", got, err)
			}
		})
	}
}

func TestNoLimit(t *testing.T) {
	d := newDecider(t, down{}, []*rules.Limit{tenantLimit("tenants", 1)})
	c := caller{t, d}
	for _, r := range []decision.Request{request(1, "path", "/"), {N: 1}, {}, {Domain: "a"}} {
		if got := c.take(true, r); len(got.Parts[0].Statuses) != 0 || got.ID != "" {
			t.Errorf("%+v of no limit", got)
		}
	}
	if got := d.Stats(); got.Unmatched != 4 || got.Matched != 0 || got.Decisions != 4 {
		t.Errorf("counts %+v", got)
	}
}

func TestOverride(t *testing.T) {
	d := newDecider(t, newStore(t), []*rules.Limit{tenantLimit("tenants", 10)})
	c := caller{t, d}
	to := func(n, units int64) decision.Request {
		r := acme(n)
		r.Override = &rules.Rate{Units: units, Window: time.Minute}
		return r
	}
	c.take(true, acme(8))
	c.take(false, to(1, 8)) // on the same history
	got := c.take(true, to(30, 40)).Parts[0].Statuses[0]
	if got.Result.Remaining != 2 || got.Rate.Units != 40 || got.Result.Limit.Max != 40 {
		t.Errorf("38 of 40 units: %+v", got)
	}
	if !c.take(false, to(1, 0)).Parts[0].Statuses[0].Never {
		t.Error("a rate of no units admits later")
	}
	for _, rate := range []rules.Rate{{Units: -1, Window: time.Minute}, {Units: 1, Window: -1},
		{Units: driver.MaxUnits + 1, Window: time.Minute}} {
		r := acme(1)
		r.Override = &rate
		_, err := d.Decide(t.Context(), []decision.Request{r}, decision.Options{})
		if !errors.Is(err, ratelimit.ErrInvalid) {
			t.Errorf("override %+v: error %v, want ErrInvalid", rate, err)
		}
	}
}

// TestOverrideOfDebt: a request may bring a window that is longer than the debt of the limit, which
// is the window then.
func TestOverrideOfDebt(t *testing.T) {
	l := tenantLimit("tenants", 10)
	l.Algorithm, l.Debt = "bucket", time.Minute
	d := newDecider(t, newStore(t), []*rules.Limit{l})
	r := acme(driver.MaxUnits)
	r.Override = &rules.Rate{Units: 10, Window: time.Hour}
	got, err := d.Decide(t.Context(), []decision.Request{r}, decision.Options{Force: true})
	if err != nil {
		t.Fatal(err)
	}
	status := got.Parts[0].Statuses[0]
	if reset := status.Result.ResetAfter; reset != time.Hour || status.Limit != l {
		t.Errorf("ResetAfter %v, want 1h; %+v", reset, status)
	}
	r.Override.Units, r.Override.Window = driver.MaxUnits, 365*24*time.Hour
	c := caller{t, d}
	c.decide(decision.Options{Force: true}, r)
	wait := c.take(false, acme(1)).Parts[0].Statuses[0].Result.RetryAfter
	if wait <= 0 || wait > time.Minute {
		t.Errorf("after an override for a year a unit is free in %v, want a minute at most", wait)
	}
}

// TestRatesOfBucket: what was spent under one rate of a bucket is not forgotten by a request under
// another one, whatever their windows.
func TestRatesOfBucket(t *testing.T) {
	day := 24 * time.Hour
	l := tenantLimit("tenants", 10)
	l.Algorithm, l.Rate.Window = "bucket", time.Minute
	l.By = &rules.Plans{Entry: "plan", Rates: map[string]rules.Rate{
		"pro": {Units: 10_000, Window: 30 * day}}}
	c := caller{t, newDecider(t, newStore(t), []*rules.Limit{l})}
	pro := func(n int64) decision.Request { return request(n, "tenant", "acme", "plan", "pro") }
	c.take(true, pro(10_000))
	for range 3 {
		c.take(false, acme(1))
		c.take(false, pro(1))
	}
}

func TestWrongCalls(t *testing.T) {
	hold, negative := time.Duration(0), time.Duration(-1)
	inFlight := limitOn("call", "calls", 3)
	inFlight.Algorithm, inFlight.Rate.Window = "in-flight", 0
	d := newDecider(t, newStore(t), []*rules.Limit{tenantLimit("tenants", 1), inFlight})
	var keys []decision.Request
	for i := range 256 {
		keys = append(keys, request(1, "tenant", strings.Repeat("a", i+1)))
	}
	one, minus := []decision.Request{acme(1)}, []decision.Request{acme(-1)}
	many := make([]decision.Request, 257)
	call := []decision.Request{request(1, "call", "a")}
	for name, test := range map[string]struct {
		requests []decision.Request
		opts     decision.Options
		want     error
	}{
		"no request":       {nil, decision.Options{}, ratelimit.ErrInvalid},
		"many requests":    {many, decision.Options{}, ratelimit.ErrInvalid},
		"many keys":        {keys, decision.Options{}, nil},
		"negative units":   {minus, decision.Options{}, ratelimit.ErrInvalid},
		"peek and force":   {one, decision.Options{Peek: true, Force: true}, ratelimit.ErrInvalid},
		"peek with hold":   {one, decision.Options{Peek: true, Hold: &hold}, ratelimit.ErrInvalid},
		"force with hold":  {one, decision.Options{Force: true, Hold: &hold}, ratelimit.ErrInvalid},
		"wait, no hold":    {one, decision.Options{Wait: 1}, ratelimit.ErrInvalid},
		"negative hold":    {one, decision.Options{Hold: &negative}, ratelimit.ErrInvalid},
		"each, with hold":  {one, decision.Options{Each: true, Hold: &hold}, ratelimit.ErrInvalid},
		"call, no hold":    {call, decision.Options{}, decision.ErrNeedsHold},
		"call without one": {[]decision.Request{request(0, "call", "a")}, decision.Options{}, nil},
		"long values": {
			[]decision.Request{request(1, "tenant", strings.Repeat("x", 1<<20))},
			decision.Options{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := d.Decide(t.Context(), test.requests, test.opts)
			if !errors.Is(err, test.want) || err == nil && !got.Allowed {
				t.Errorf("%v, error %v, want %v", got.Allowed, err, test.want)
			}
		})
	}
}

func TestNoSet(t *testing.T) {
	d := decision.New(newStore(t))
	_, err := d.Decide(t.Context(), []decision.Request{acme(1)}, decision.Options{})
	if !errors.Is(err, decision.ErrNoSet) || d.Set() != nil {
		t.Errorf("error %v without limits, want ErrNoSet", err)
	}
}

// TestManyPaths: a path that more than 256 limits may match, since it is spelled so, is refused by
// one of them, and no error, which Envoy admits.
func TestManyPaths(t *testing.T) {
	const open = `/a%2f..%2f..;x//b\..%255c%252f..%3f//a;%23//..`
	var limits []*rules.Limit
	for i := range 300 {
		limits = append(limits, with(tenantLimit(fmt.Sprint("l", i), 3), func(l *rules.Limit) {
			l.Shadow = i < 260
			l.When = []rules.Condition{{Entry: "path", Pattern: fmt.Sprint("/l", i)}}
		}))
	}
	d := newDecider(t, newStore(t), limits)
	for _, path := range []string{open, "/l7", "/l299", open} {
		got, err := d.Decide(t.Context(), []decision.Request{
			request(1, "tenant", "acme", "path", path)}, decision.Options{})
		if err != nil || got.Allowed != (path != open) {
			t.Fatalf("%s: %+v, %v", path, got, err)
		}
		s := got.Parts[0].Statuses
		if last := s[len(s)-1]; last.Never != (path == open) || last.Allowed == last.Never {
			t.Errorf("%s: %+v", path, last)
		}
	}
}

// TestManyUses: a call has at most 256 limits and keys.
func TestManyUses(t *testing.T) {
	d := newDecider(t, newStore(t), []*rules.Limit{tenantLimit("a", 1), tenantLimit("b", 1)})
	var requests []decision.Request
	for i := range 129 {
		requests = append(requests, request(1, "tenant", strings.Repeat("a", i+1)))
	}
	_, err := d.Decide(t.Context(), requests, decision.Options{})
	if !errors.Is(err, ratelimit.ErrInvalid) {
		t.Errorf("error %v of 258 limits and keys, want ErrInvalid", err)
	}
	caller{t, d}.take(true, requests[:128]...)
}

// TestOverflow: units that add up to more than an integer holds are too many.
func TestOverflow(t *testing.T) {
	c := caller{t, newDecider(t, newStore(t), []*rules.Limit{tenantLimit("tenants", 5)})}
	got := c.take(false, acme(math.MaxInt64), acme(math.MaxInt64), acme(3))
	if !got.Parts[2].Statuses[0].Never {
		t.Errorf("%+v", got)
	}
}

// TestBlock: a block has no units, whatever a request asks for.
func TestBlock(t *testing.T) {
	block := with(tenantLimit("blocked", 1), func(l *rules.Limit) {
		l.Algorithm, l.Rate, l.Warn = "block", rules.Rate{Window: time.Hour}, .5
	})
	store := newStore(t)
	d := newDecider(t, store, []*rules.Limit{block})
	c := caller{t, d}
	c.take(true, acme(1<<50))
	admin := newLimiter(t, store, d.Set().Variants()[0].Algorithm)
	if _, err := admin.Force(t.Context(), "acme", 1000); err != nil {
		t.Fatal(err)
	}
	got := c.take(false, acme(1)).Parts[0].Statuses[0]
	if got.Never || got.Warned || got.Result.RetryAfter == 0 {
		t.Errorf("%+v while blocked", got)
	}
}
