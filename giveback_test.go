package ratelimit_test

import (
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/driver"
)

// TestGiveBack: each limit gets the units back that its own result identifies.
func TestGiveBack(t *testing.T) {
	clock := newClock()
	store := &mapStore{now: clock.now}
	limiter := newLimiter(t, store, ratelimit.PerSecond("second", 5),
		ratelimit.PerMinute("minute", 9))
	remaining := func(second, minute int64) {
		t.Helper()
		each, err := ratelimit.PeekAll(t.Context(), claim(limiter, 1))
		if err != nil || each[0].Remaining != second || each[1].Remaining != minute {
			t.Fatalf("%+v, %v; want %d and %d remaining", each, err, second, minute)
		}
	}
	giveBack := func(n int64, admission []ratelimit.Result) {
		t.Helper()
		if err := limiter.GiveBack(t.Context(), "k", n, admission...); err != nil {
			t.Fatal(err)
		}
	}
	take := func(n int64) []ratelimit.Result {
		t.Helper()
		each, err := ratelimit.AllowAll(t.Context(), claim(limiter, n))
		if err != nil || !each[0].Allowed || !each[1].Allowed {
			t.Fatalf("%+v, %v", each, err)
		}
		return each
	}
	first := take(3)
	clock.advance(time.Millisecond)
	second := take(2)
	remaining(0, 4)
	giveBack(2, first)
	remaining(2, 6)
	giveBack(5, first) // of which one is left
	remaining(3, 7)
	giveBack(1, second)
	remaining(4, 8)
	first[0].At, second[1].At = second[0].At, first[1].At // a stamp for each limit
	giveBack(1, []ratelimit.Result{first[0], second[1]})
	remaining(5, 8)
	third := take(1)
	clock.advance(2 * time.Second)
	giveBack(1, third) // which has left the second
	remaining(5, 8)
}

// TestGiveBackOfNothing: an admission that recorded nothing is given back without calling the
// store, and results that are not an admission are an error.
func TestGiveBackOfNothing(t *testing.T) {
	one := ratelimit.Result{Allowed: true, At: 1}
	open := ratelimit.Result{Allowed: true, Source: ratelimit.SourceOpen}
	refused := ratelimit.Result{At: 1, RetryAfter: 1}
	for _, tt := range []struct {
		name      string
		limits    int
		key       string
		n         int64
		admission []ratelimit.Result
		want      error
	}{
		{"no units", 1, "k", 0, []ratelimit.Result{one}, nil},
		{"open", 1, "k", 1, []ratelimit.Result{open}, nil},
		{"open, two limits", 2, "k", 1, []ratelimit.Result{open, open}, nil},
		{"no results", 1, "k", 1, nil, ratelimit.ErrInvalid},
		{"no results, no units", 1, "k", 0, nil, ratelimit.ErrInvalid},
		{"one of two results", 2, "k", 1, []ratelimit.Result{one}, ratelimit.ErrInvalid},
		{"a result too many", 1, "k", 1, []ratelimit.Result{one, one}, ratelimit.ErrInvalid},
		{"a refusal", 1, "k", 1, []ratelimit.Result{refused}, ratelimit.ErrInvalid},
		{"refused by one of two", 2, "k", 1, []ratelimit.Result{one, refused},
			ratelimit.ErrInvalid},
		{"no key, no units", 1, "", 0, []ratelimit.Result{one}, ratelimit.ErrInvalid},
		{"no key, open", 1, "", 1, []ratelimit.Result{open}, ratelimit.ErrInvalid},
		{"n negative, open", 1, "k", -1, []ratelimit.Result{open}, ratelimit.ErrInvalid},
		{"n beyond MaxUnits, open", 1, "k", driver.MaxUnits + 1, []ratelimit.Result{open},
			ratelimit.ErrInvalid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			store := &mapStore{}
			limiter := newLimiter(t, store, minuteAndHour[:tt.limits]...)
			err := limiter.GiveBack(t.Context(), tt.key, tt.n, tt.admission...)
			wantErr(t, err, tt.want)
			wantCalls(t, store)
		})
	}
}

// TestForce: units are recorded even if they do not fit, under all limits, and can be given back
// like others.
func TestForce(t *testing.T) {
	clock := newClock()
	store := &mapStore{now: clock.now}
	limiter := newLimiter(t, store,
		ratelimit.Limit{Name: "three", Max: 3, Window: 10 * time.Second})
	mustAllow(t, limiter, 2)
	clock.advance(time.Second)
	forced, err := limiter.Force(t.Context(), "k", 7)
	want := ratelimit.Result{Allowed: true, Limit: limiter.Limits()[0],
		ResetAfter: 10 * time.Second, At: clock.now()}
	if err != nil || forced != want {
		t.Fatalf("Force: %+v, %v; want %+v", forced, err, want)
	}
	if res, err := limiter.Allow(t.Context(), "k"); err != nil || res.Allowed ||
		res.RetryAfter != 10*time.Second {
		t.Errorf("under a debt: %+v, %v", res, err)
	}
	if err := limiter.GiveBack(t.Context(), "k", 6, forced); err != nil {
		t.Fatal(err)
	}
	if res, err := limiter.Allow(t.Context(), "k"); err != nil || res.Allowed ||
		res.RetryAfter != 9*time.Second {
		t.Errorf("when the debt was given back: %+v, %v", res, err)
	}
	store.made()
	if res, err := limiter.Force(t.Context(), "k", 0); err != nil || res.Allowed ||
		res.RetryAfter != 9*time.Second {
		t.Errorf("Force of no units, a peek: %+v, %v", res, err)
	}
	wantCalls(t, store, "one peek")
}
