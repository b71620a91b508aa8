package decision_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
)

// held are options that hold for as long as the limits say.
func held() decision.Options { return decision.Options{Hold: new(time.Duration)} }

func TestHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := with(tenantLimit("calls", 2), func(l *rules.Limit) {
			l.Algorithm, l.Rate.Window = "in-flight", 0
		})
		d := newDecider(t, newStore(t), []*rules.Limit{
			with(tenantLimit("tokens", 100), holds), calls, tenantLimit("requests", 3)})
		c := caller{t, d}
		got := c.decide(held(), acme(1), acme(1)) // each descriptor is a call
		if !got.Allowed || got.ID == "" {
			t.Fatalf("%+v, want an id", got)
		}
		refused := c.decide(held(), acme(1))
		if refused.Allowed || refused.ID != "" {
			t.Fatalf("%+v of a third call in flight", refused)
		}
		r, err := d.Resume(got.ID)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Commit(t.Context(), 30); err != nil {
			t.Fatal(err)
		}
		c.remaining(acme(0), 0, 70)
		c.remaining(acme(0), 1, 2)
		c.remaining(acme(0), 2, 1) // without holds: charged for good
		if got := c.decide(held(), acme(0)); !got.Allowed || got.ID != "" {
			t.Errorf("%+v of nothing to hold", got)
		}
	})
}

// TestUseKeepsWaitingCalls: a call that waits is admitted as soon as units are released, also if a
// set with the same limit has been put in force meanwhile.
func TestUseKeepsWaitingCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := func() *rules.Limit {
			return with(tenantLimit("calls", 1), func(l *rules.Limit) {
				l.Algorithm, l.Rate.Window = "in-flight", 0
			})
		}
		d := newDecider(t, newStore(t), []*rules.Limit{calls()})
		c := caller{t, d}
		first := c.decide(held(), acme(1))
		admitted := make(chan bool)
		go func() {
			opts := held()
			opts.Wait = time.Hour
			admitted <- c.decide(opts, acme(1)).Allowed
		}()
		synctest.Wait()
		if err := d.Use(compile(t, tenantLimit("other", 1), calls())); err != nil {
			t.Fatal(err)
		}
		released := time.Now()
		r, err := d.Resume(first.ID)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Cancel(t.Context()); err != nil {
			t.Fatal(err)
		}
		if waited := <-admitted; !waited || time.Since(released) > 0 {
			t.Errorf("admitted %t, %v after the release", waited, time.Since(released))
		}
	})
}

// TestNoInFlight: a protocol that does not say when a call ends leaves out a limit of calls in
// flight, and no other. One that admits nothing refuses all the same.
func TestNoInFlight(t *testing.T) {
	inFlight := func(l *rules.Limit) { l.Algorithm, l.Rate.Window = "in-flight", 0 }
	d := newDecider(t, newStore(t), []*rules.Limit{
		tenantLimit("requests", 3), with(tenantLimit("calls", 1), inFlight),
		with(limitOn("user", "none", 0), inFlight)})
	c := caller{t, d}
	opts := decision.Options{NoInFlight: true}
	for range 3 {
		got := c.decide(opts, acme(1))
		if statuses := got.Parts[0].Statuses; !got.Allowed || len(statuses) != 1 ||
			statuses[0].Limit.Name != "requests" {
			t.Fatalf("%+v, want an admission under requests", got)
		}
	}
	if c.decide(opts, acme(1)).Allowed {
		t.Error("the fourth of 3 requests is admitted")
	}
	if c.decide(opts, request(1, "user", "bob")).Allowed {
		t.Error("a call is admitted where none may be in flight")
	}
	c.remaining(acme(0), 1, 1)
}

// TestHoldAlways: units that are held have to fit under a limit with Always too, whose settlement
// records what was used.
func TestHoldAlways(t *testing.T) {
	budget := with(with(tenantLimit("budget", 10), holds), always)
	count := with(tenantLimit("count", 1), always)
	d := newDecider(t, newStore(t), []*rules.Limit{budget, count})
	c := caller{t, d}
	got := c.decide(held(), acme(1))
	if !got.Allowed || got.ID == "" {
		t.Fatalf("%+v", got)
	}
	if c.decide(held(), acme(11)).Allowed {
		t.Error("11 of 10 units are held")
	}
	c.remaining(acme(0), 0, 9)
}

func TestHoldShadow(t *testing.T) {
	d := newDecider(t, newStore(t), []*rules.Limit{
		with(tenantLimit("budget", 10), holds), with(with(tenantLimit("tried", 3), holds), shadow)})
	c := caller{t, d}
	for range 2 {
		if got := c.decide(held(), acme(2)); !got.Allowed {
			t.Fatalf("%+v", got)
		}
	}
	if got := d.Stats().Limits["tried"].ShadowRefused; got != 1 {
		t.Errorf("%d refusals of the shadow, want 1", got)
	}
}

func TestHoldWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDecider(t, newStore(t), []*rules.Limit{with(tenantLimit("tokens", 10), holds)})
		c := caller{t, d}
		opts := held()
		opts.Wait = 5 * time.Second
		c.take(true, acme(10))
		began := time.Now()
		if got := c.decide(opts, acme(5)); got.Allowed || time.Since(began) != opts.Wait {
			t.Errorf("allowed %t after %v, want a refusal after %v",
				got.Allowed, time.Since(began), opts.Wait)
		}
		time.Sleep(52 * time.Second)
		got := c.decide(opts, acme(5))
		if took := time.Since(began).Truncate(time.Microsecond); !got.Allowed ||
			took != time.Minute {
			t.Errorf("allowed %t after %v, want an admission after a minute", got.Allowed, took)
		}
		client, leave := context.WithCancel(t.Context())
		opts.Client = client
		time.AfterFunc(time.Second, leave)
		began = time.Now()
		if got := c.decide(opts, acme(10)); got.Allowed || time.Since(began) != time.Second {
			t.Errorf("allowed %t after %v, want a refusal when the client leaves",
				got.Allowed, time.Since(began))
		}
		var stop context.CancelFunc
		opts.Client = t.Context()
		opts.Stop, stop = context.WithCancel(t.Context())
		time.AfterFunc(time.Second, stop)
		for _, wait := range []time.Duration{time.Second, 0} { // nothing waits afterwards
			began = time.Now()
			if got := c.decide(opts, acme(10)); got.Allowed || time.Since(began) != wait {
				t.Errorf("allowed %t after %v, want a refusal when the service stops",
					got.Allowed, time.Since(began))
			}
		}
	})
}

// TestHoldWaitsInVain: a refusal that is longer than the wait ends it at once.
func TestHoldWaitsInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocked := with(limitOn("user", "blocked", 0), func(l *rules.Limit) {
			l.Algorithm, l.Rate.Window = "block", time.Hour
		})
		d := newDecider(t, newStore(t), []*rules.Limit{
			with(tenantLimit("tokens", 10), holds), tenantLimit("requests", 1), blocked})
		c := caller{t, d}
		opts := held()
		opts.Wait = 5 * time.Second
		c.decide(opts, acme(1))
		if _, err := d.Block(t.Context(), "blocked", "bob", 60_000); err != nil {
			t.Fatal(err)
		}
		for _, r := range []decision.Request{
			acme(1), request(1, "tenant", "other", "user", "bob"),
		} {
			began := time.Now()
			if got := c.decide(opts, r); got.Allowed || time.Since(began) > 0 {
				t.Errorf("%v: allowed %t after %v", r.Descriptor, got.Allowed, time.Since(began))
			}
		}
		c.remaining(acme(0), 0, 9)
	})
}

// TestMostHeld: a call with more limits and keys than an ID may have charges nothing. Requests with
// the same key, and limits without holds, do not count.
func TestMostHeld(t *testing.T) {
	d := newDecider(t, newStore(t), []*rules.Limit{
		tenantLimit("requests", 9), with(tenantLimit("tokens", 9), holds)})
	c := caller{t, d}
	opts := held()
	opts.MostHeld = 1
	_, err := d.Decide(t.Context(), []decision.Request{acme(1), request(1, "tenant", "b")}, opts)
	if !errors.Is(err, decision.ErrTooManyHeld) {
		t.Errorf("error %v, want ErrMostHeld", err)
	}
	c.remaining(acme(0), 0, 9)
	if got := c.decide(opts, acme(1), acme(1)); got.ID == "" {
		t.Errorf("%+v, want an id", got)
	}
}

func TestHoldOutOfRange(t *testing.T) {
	d := newDecider(t, newStore(t), []*rules.Limit{with(tenantLimit("tokens", 10), holds)})
	long := time.Hour
	_, err := d.Decide(t.Context(), []decision.Request{acme(1)}, decision.Options{Hold: &long})
	if !errors.Is(err, ratelimit.ErrInvalid) {
		t.Errorf("error %v of a hold of an hour, want ErrInvalid", err)
	}
}

func TestHoldOpen(t *testing.T) {
	d := newDecider(t, down{}, []*rules.Limit{with(tenantLimit("tokens", 10), holds)},
		decision.WithPolicy(ratelimit.FailOpen))
	got, err := d.Decide(t.Context(), []decision.Request{acme(1)}, held())
	if err != nil || !got.Allowed || got.ID != "" {
		t.Errorf("%+v, %v, want an admission without an id", got, err)
	}
}

// TestResume: an id outlives a set, but not its limit.
func TestResume(t *testing.T) {
	d := newDecider(t, newStore(t), []*rules.Limit{with(tenantLimit("tokens", 10), holds)})
	c := caller{t, d}
	id := c.decide(held(), acme(8)).ID
	if err := d.Use(compile(t, with(tenantLimit("tokens", 5), holds))); err != nil {
		t.Fatal(err)
	}
	r, err := d.Resume(id)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Commit(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	c.remaining(acme(0), 0, 4)
	if err := d.Use(compile(t, tenantLimit("others", 5))); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Resume(id); !errors.Is(err, ratelimit.ErrUnknownLimit) {
		t.Errorf("error %v, want ErrUnknownLimit", err)
	}
	if _, err := decision.New(newStore(t)).Resume(id); !errors.Is(err, decision.ErrNoSet) {
		t.Errorf("error %v, want ErrNoSet", err)
	}
}

// TestResumeMany: an id with more than a decision holds is not one.
func TestResumeMany(t *testing.T) {
	d := newDecider(t, newStore(t), []*rules.Limit{with(tenantLimit("tokens", 10), holds)})
	text, err := base64.RawURLEncoding.DecodeString(caller{t, d}.decide(held(), acme(1)).ID)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{256, 257} {
		var token map[string]any
		if err := json.Unmarshal(text, &token); err != nil {
			t.Fatal(err)
		}
		claims := token["c"].([]any)
		for i := range n - 1 {
			claim := maps.Clone(claims[0].(map[string]any))
			claim["k"] = []byte{1, byte(i)}
			claims = append(claims, claim)
		}
		token["c"] = claims
		changed, err := json.Marshal(token)
		if err != nil {
			t.Fatal(err)
		}
		r, err := d.Resume(base64.RawURLEncoding.EncodeToString(changed))
		if many := n > 256; many != errors.Is(err, ratelimit.ErrInvalidToken) {
			t.Errorf("%d claims: %v", n, err)
		}
		if err == nil {
			_ = r.Cancel(t.Context())
		}
	}
}
