package ratelimit_test

import (
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
)

// TestPlans: limiters with the same limit name share a history. So a limit can be raised and
// lowered at once, and a reservation that is open meanwhile is settled under either limit.
func TestPlans(t *testing.T) {
	clock := newClock()
	store := &mapStore{now: clock.now}
	plan := func(limit ratelimit.Limit) *ratelimit.Limiter { return newBudgets(t, store, limit) }
	small, large := plan(ratelimit.PerMinute("tokens", 10)),
		plan(ratelimit.PerMinute("tokens", 100))
	long := plan(ratelimit.PerHour("tokens", 100))
	left := func(l *ratelimit.Limiter, want int64) {
		t.Helper()
		if res, err := l.Peek(t.Context(), "k"); err != nil || res.Remaining != want {
			t.Fatalf("%+v, %v; want %d left", res, err, want)
		}
	}
	mustAllow := func(l *ratelimit.Limiter, n int64, want bool) {
		t.Helper()
		if res, err := l.AllowN(t.Context(), "k", n); err != nil || res.Allowed != want {
			t.Fatalf("%+v, %v; want allowed %t", res, err, want)
		}
	}
	mustAllow(small, 10, true)
	mustAllow(small, 1, false)
	mustAllow(large, 30, true) // raised
	left(large, 60)
	r := mustReserve(t, ratelimit.Claim{Limiter: large, Key: "k", N: 40})
	left(small, 0) // lowered: what was taken stays taken
	noErr(t, r.Commit(t.Context(), 5))
	left(large, 55)
	clock.advance(time.Minute)
	left(small, 10)
	r = mustReserve(t, ratelimit.Claim{Limiter: small, Key: "k", N: 10})
	text, err := r.Token()
	noErr(t, err)
	upgraded, err := ratelimit.Resume(text, long) // a longer window
	noErr(t, err)
	noErr(t, upgraded.Commit(t.Context(), 4))
	left(small, 6)
}
