package decision_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/cmd/ratelimit/decision"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
	"github.com/truewindow/ratelimit/driver"
)

func quota(l *rules.Limit) { l.Quota = true }

// quotas returns two limits with Quota and one without: primary, secondary and plain.
func quotas(primary, secondary, plain int64) []*rules.Limit {
	return []*rules.Limit{with(limitOn("p", "primary", primary), quota),
		with(limitOn("s", "secondary", secondary), quota), limitOn("plain", "plain", plain)}
}

// both returns a request for n units of both quotas, and one of the plain limit. Their keys differ,
// so that a store may decide them apart.
func both(n int64) []decision.Request {
	return []decision.Request{request(n, "p", "a"), request(n, "s", "b"), request(n, "plain", "c")}
}

// TestQuota: a limit with Quota that has no room neither refuses nor is charged while another has,
// and another limit refuses alone.
func TestQuota(t *testing.T) {
	for name, store := range map[string]ratelimit.Store{
		"together": newStore(t), "one by one": apart{newStore(t)}} {
		t.Run(name, func(t *testing.T) {
			c := caller{t, newDecider(t, store, quotas(2, 5, 9))}
			left := func(primary, secondary, plain int64) {
				t.Helper()
				for i, want := range []int64{primary, secondary, plain} {
					got := c.decide(decision.Options{Peek: true}, both(0)...)
					if is := got.Parts[i].Statuses[0].Result.Remaining; is != want {
						t.Errorf("limit %d has %d units, want %d", i, is, want)
					}
				}
			}
			c.take(true, both(2)...)
			left(0, 3, 7)
			got := c.take(true, both(2)...)
			for i, want := range []bool{false, true, true} {
				if s := got.Parts[i].Statuses[0]; s.Allowed != want || !s.Asked {
					t.Errorf("status %d: %+v", i, s)
				}
			}
			left(0, 1, 5)
			c.take(false, both(2)...)
			left(0, 1, 5)
			c.take(true, both(1)...)
			left(0, 0, 4)
			c.take(false, both(1)...)
			c.take(false, both(0)...)
			c.take(true, request(4, "plain", "c"))
			left(0, 0, 0)
		})
	}
}

// TestQuotaBesideOthers: another limit that is full refuses, and the quotas are not charged.
func TestQuotaBesideOthers(t *testing.T) {
	for name, store := range map[string]ratelimit.Store{
		"together": newStore(t), "one by one": apart{newStore(t)}} {
		t.Run(name, func(t *testing.T) {
			c := caller{t, newDecider(t, store, quotas(2, 5, 1))}
			c.take(false, both(2)...)
			c.remaining(request(0, "s", "b"), 0, 5)
			c.take(true, both(1)...)
			c.take(false, both(1)...)
			c.remaining(request(0, "s", "b"), 0, 4)
		})
	}
}

// TestQuotaKinds: a quota that can never admit is none with room, one without a bound is no quota,
// and one that only tries has room always.
func TestQuotaKinds(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(limits []*rules.Limit)
		want   bool
	}{
		"never":     {func(l []*rules.Limit) { l[0].Rate.Units = 0 }, true},
		"all never": {func(l []*rules.Limit) { l[0].Rate.Units, l[1].Rate.Units = 0, 0 }, false},
		"unlimited": {func(l []*rules.Limit) {
			l[0].Rate, l[1].Rate.Units = rules.Rate{Unlimited: true}, 0
		}, false},
		"shadow": {func(l []*rules.Limit) {
			l[0].Shadow, l[0].Rate.Units, l[1].Rate.Units = true, 0, 0
		}, true},
		"always": {func(l []*rules.Limit) { l[0].Always, l[1].Rate.Units = true, 0 }, true},
	} {
		t.Run(name, func(t *testing.T) {
			limits := quotas(3, 3, 9)
			tt.change(limits)
			c := caller{t, newDecider(t, newStore(t), limits)}
			peek := c.decide(decision.Options{Peek: true}, both(1)...)
			got := c.take(tt.want, both(1)...)
			if peek.Allowed != got.Allowed {
				t.Errorf("a peek says %t", peek.Allowed)
			}
			want := int64(9)
			if tt.want {
				want = 8
			}
			c.remaining(request(0, "plain", "c"), 0, want)
		})
	}
	// One that never has room and one that has none any more.
	limits := quotas(0, 1, 9)
	c := caller{t, newDecider(t, newStore(t), limits)}
	c.take(true, both(1)...)
	c.take(false, both(1)...)
	c.remaining(request(0, "plain", "c"), 0, 8)
}

// TestQuotaUsed: what was used before is recorded under quotas whether it fits or not, and under
// others only if it fits.
func TestQuotaUsed(t *testing.T) {
	limits := append(quotas(5, 9, 9), with(limitOn("p", "minute", 7), quota))
	c := caller{t, newDecider(t, newStore(t), limits)}
	used := func(n int64, entry string) decision.Request {
		r := request(n, entry, "a")
		r.Used = true
		return r
	}
	c.take(true, used(6, "p")) // one has room
	got := c.take(true, request(1, "p", "a")).Parts[0].Statuses
	if got[0].Allowed || !got[1].Allowed {
		t.Errorf("%+v", got)
	}
	c.take(false, used(1<<60, "p"))
	c.take(false, request(0, "p", "a"))
	c.take(true, used(8, "plain"))
	c.take(false, used(2, "plain"))
	c.remaining(request(0, "plain", "a"), 0, 1)
}

// TestQuotaEach: requests that are decided alone are charged if they have room themselves.
func TestQuotaEach(t *testing.T) {
	c := caller{t, newDecider(t, newStore(t), quotas(2, 5, 2))}
	each, always := decision.Options{Each: true}, decision.Options{Each: true, Always: true}
	for i, want := range []bool{true, true, false} {
		if got := c.decide(each, both(1)...); got.Allowed != want {
			t.Errorf("call %d: %+v", i, got)
		}
	}
	c.remaining(request(0, "s", "b"), 0, 2)
	for i, tt := range []struct {
		opts decision.Options
		want bool
	}{{each, true}, {always, true}, {always, false}} {
		if c.decide(tt.opts, both(1)[:2]...).Allowed != tt.want {
			t.Errorf("call %d of a secondary of 2 units: not %t", i, tt.want)
		}
	}
}

// asked is a store that notes, for the call of a context, whether one demand of its calls together
// found no quota with room. Calls of it are one after the other.
type asked struct {
	ratelimit.Store
	mu *sync.Mutex
}

type askedKey struct{}

func (s asked) TakeAll(ctx context.Context, ds []driver.Demand, out []driver.Result) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.Store.TakeAll(ctx, ds, out)
	found, full := 0, 0
	for i, d := range ds {
		switch name := d.Algorithm.Limit().Name; {
		case name == "plain":
		case out[i].Allowed:
			found++
		default:
			found, full = found+1, full+1
		}
	}
	if explained, ok := ctx.Value(askedKey{}).(*atomic.Bool); ok && found == 3 && full == 3 {
		explained.Store(true)
	}
	return err
}

// TestQuotaRace: callers at the edge of three quotas never get more than each has, get all of what
// they have, and each refusal had an instant at which none had room.
func TestQuotaRace(t *testing.T) {
	for range 20 {
		store := asked{newStore(t), new(sync.Mutex)}
		limits := append(quotas(40, 60, 1000), with(limitOn("t", "third", 50), quota))
		d := newDecider(t, store, limits)
		var admitted, charged [3]atomic.Int64
		var calls sync.WaitGroup
		for range 64 {
			n := 1 + rand.Int64N(3)
			calls.Go(func() {
				for range 4 {
					explained := new(atomic.Bool)
					ctx := context.WithValue(t.Context(), askedKey{}, explained)
					got, err := d.Decide(ctx, []decision.Request{request(n, "p", "a"),
						request(n, "s", "a"), request(n, "t", "a"), request(n, "plain", "a")},
						decision.Options{})
					if err != nil {
						t.Error(err)
						return
					}
					if !got.Allowed && !explained.Load() {
						t.Errorf("a refusal of %d units without an instant: %+v", n, got)
					}
					for i := range 3 {
						if got.Allowed && got.Parts[i].Statuses[0].Allowed {
							charged[i].Add(n)
						}
					}
					if got.Allowed {
						admitted[0].Add(n)
					}
				}
			})
		}
		calls.Wait()
		c := caller{t, d}
		for i, entry := range []string{"p", "s", "t"} {
			max := []int64{40, 60, 50}[i]
			if n := charged[i].Load(); n > max || n < max-2 {
				t.Errorf("%s: %d of %d units", entry, n, max)
			}
			if left := max - charged[i].Load(); left > 0 {
				c.remaining(request(0, entry, "a"), 0, left)
			}
		}
		c.remaining(request(0, "plain", "a"), 0, 1000-admitted[0].Load())
	}
}

// TestQuotaObserved: each limit of a call is observed once, as it decided in the end.
func TestQuotaObserved(t *testing.T) {
	var seen []string
	d := newDecider(t, newStore(t), quotas(1, 2, 9), decision.WithObserver(
		func(_ context.Context, o ratelimit.Observation) {
			outcome := " refused"
			if o.Admitted {
				outcome = " admitted"
			}
			switch o.Op {
			case driver.OpPeek:
				outcome = " peek"
			case driver.OpForce:
				outcome = " force"
			}
			seen = append(seen, o.Limits[0].Name+outcome)
		}))
	c := caller{t, d}
	for i, want := range [][]string{
		{"primary admitted", "secondary admitted", "plain admitted"},
		{"secondary admitted", "plain admitted", "primary peek"},
		{"primary peek", "secondary peek", "plain peek"},
		{"primary refused", "secondary refused", "plain refused"},
	} {
		seen = nil
		if i == 2 {
			c.decide(decision.Options{Peek: true}, both(1)...)
		} else {
			c.take(i < 2, both(1)...)
		}
		if len(seen) != len(want) {
			t.Errorf("call %d: %q", i, seen)
			continue
		}
		for j := range want {
			if seen[j] != want[j] {
				t.Errorf("call %d: %q, want %q", i, seen, want)
				break
			}
		}
	}
	// What was used is no refusal, though it does not fit.
	seen = nil
	charge := request(1, "p", "a")
	charge.Used = true
	if c.take(false, charge); len(seen) != 1 || seen[0] != "primary force" {
		t.Errorf("a charge is %q", seen)
	}
}
