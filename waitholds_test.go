package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
)

// hourAndCalls are the limits of TestWaitAsksWhenItMust: units of an hour, and calls in flight.
type hourAndCalls struct {
	store *mapStore
	hours []ratelimit.Algorithm
	calls ratelimit.Algorithm
}

// claims returns claims under the limits in an order, of one limiter or of one for each limit.
func (l hourAndCalls) claims(t *testing.T, callsFirst, one bool) []ratelimit.Claim {
	algorithms := append(slices.Clone(l.hours), l.calls)
	if callsFirst {
		slices.Reverse(algorithms)
	}
	var claims []ratelimit.Claim
	for _, a := range algorithms {
		limiter, err := ratelimit.New(l.store, a)
		noErr(t, err)
		claims = append(claims, claim(limiter, 1))
	}
	if one {
		limiter, err := ratelimit.New(l.store, algorithms...)
		noErr(t, err)
		claims = []ratelimit.Claim{claim(limiter, 1)}
	}
	return claims
}

// use takes a unit of an hour, and holds a call until a time or, with 0, for ever.
func (l hourAndCalls) use(t *testing.T, a ratelimit.Algorithm, until time.Duration) {
	limiter, err := ratelimit.New(l.store, a)
	noErr(t, err)
	r := mustReserve(t, claim(limiter, 1))
	if until > 0 {
		time.AfterFunc(until, func() { noErr(t, r.Cancel(context.Background())) })
	}
}

// TestWaitAsksWhenItMust: a wait for units of limits without holds asks the store when they are
// free, and gives up at once if that is after its deadline, whatever other limits the limiter or
// the call has. A wait for a call in flight asks often, once the others are free.
func TestWaitAsksWhenItMust(t *testing.T) {
	hour := algorithm.SlidingLog(ratelimit.PerHour("hour", 1))
	half := algorithm.SlidingLog(ratelimit.Limit{Name: "half", Max: 1, Window: time.Hour / 2})
	for _, tt := range []struct {
		name     string
		used     []ratelimit.Algorithm
		held     time.Duration // until then all calls in flight are held; 0 means no time
		deadline time.Duration // or 0
		after    time.Duration // when it is admitted or gives up
		calls    [2]int        // of the store, at least and at most
		err      error
	}{
		{name: "an hour", used: []ratelimit.Algorithm{hour}, after: time.Hour, calls: [2]int{2, 2}},
		{name: "two refuse", used: []ratelimit.Algorithm{half, hour}, after: time.Hour,
			calls: [2]int{2, 2}},
		{name: "the calls are free first", used: []ratelimit.Algorithm{half},
			held: 20 * time.Minute, after: time.Hour / 2, calls: [2]int{2, 2}},
		{name: "the calls are free last", used: []ratelimit.Algorithm{half},
			held: time.Hour/2 + time.Second, after: time.Hour/2 + time.Second,
			calls: [2]int{5, 25}},
		{name: "calls alone", held: time.Second, after: time.Second, calls: [2]int{5, 25}},
		{name: "a deadline before the hour", used: []ratelimit.Algorithm{hour},
			deadline: 59 * time.Minute, calls: [2]int{1, 1}, err: context.DeadlineExceeded},
		{name: "a deadline before the hour, all refuse", used: []ratelimit.Algorithm{half, hour},
			held: time.Minute, deadline: 59 * time.Minute, calls: [2]int{1, 1},
			err: context.DeadlineExceeded},
		{name: "a deadline between", used: []ratelimit.Algorithm{half},
			held: 2 * time.Hour, deadline: time.Hour/2 + time.Second,
			after: time.Hour/2 + time.Second, calls: [2]int{5, 25}, err: context.DeadlineExceeded},
		{name: "a deadline before the calls are free", held: time.Hour, deadline: time.Second,
			after: time.Second, calls: [2]int{5, 25}, err: context.DeadlineExceeded},
	} {
		for order := range 4 {
			callsFirst, one := order&1 > 0, order&2 > 0
			t.Run(fmt.Sprintf("%s, calls first %t, one limiter %t", tt.name, callsFirst, one),
				func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						l := hourAndCalls{new(mapStore), []ratelimit.Algorithm{hour, half},
							algorithm.InFlight("calls", 1).WithTimeout(4 * time.Hour)}
						for _, a := range tt.used {
							l.use(t, a, 0)
						}
						if tt.held > 0 {
							l.use(t, l.calls, tt.held+time.Millisecond)
						}
						claims := l.claims(t, callsFirst, one)
						l.store.made()
						ctx := t.Context()
						if tt.deadline > 0 {
							var cancel context.CancelFunc
							ctx, cancel = context.WithTimeout(ctx, tt.deadline)
							defer cancel()
						}
						began := time.Now()
						r, err := ratelimit.AcquireAll(ctx, claims...)
						late := time.Since(began) - tt.after
						asked := slices.DeleteFunc(l.store.made(), func(call string) bool {
							return call == "one settle"
						})
						if !errors.Is(err, tt.err) || late < 0 || late > 200*time.Millisecond ||
							tt.calls[1] == 2 && late > 0 {
							t.Errorf("%v %v after %v, want %v", err, late, tt.after, tt.err)
						}
						if len(asked) < tt.calls[0] || len(asked) > tt.calls[1] {
							t.Errorf("%d calls of the store, want from %d to %d",
								len(asked), tt.calls[0], tt.calls[1])
						}
						noErr(t, r.Cancel(t.Context()))
					})
				})
		}
	}
}
