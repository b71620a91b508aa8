package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
)

// TestAcquireWaits: a call that waits begins as soon as another call of this process has ended,
// whether it waits for a call in flight or for a Budget.
func TestAcquireWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, l := range []*ratelimit.Limiter{
			newCalls(t, &mapStore{}, 1), newBudgets(t, &mapStore{}, ratelimit.PerHour("hour", 1)),
		} {
			held := mustAcquire(t, l)
			begun := make(chan time.Time)
			go func() {
				r := mustAcquire(t, l)
				begun <- time.Now()
				noErr(t, r.Cancel(t.Context()))
				close(begun)
			}()
			time.Sleep(3*time.Second + time.Millisecond)
			synctest.Wait()
			released := time.Now()
			noErr(t, held.Cancel(t.Context()))
			if at := <-begun; !at.Equal(released) {
				t.Errorf("acquired %v after the release", at.Sub(released))
			}
			<-begun
		}
	})
}

// TestAcquireAsksForOthers: a call that waits also begins soon after another process has ended a
// hold, and does not give up because RetryAfter is beyond its deadline.
func TestAcquireAsksForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &mapStore{}
		here, there := newCalls(t, store, 1), newCalls(t, store, 1)
		held := mustAcquire(t, there)
		time.AfterFunc(5*time.Second, func() { _ = held.Cancel(context.Background()) })
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began := time.Now()
		r, err := here.Acquire(ctx, "k", 1)
		if err != nil || !r.Allowed() {
			t.Fatalf("%+v, %v", r, err)
		}
		if waited := time.Since(began); waited < 5*time.Second || waited > 5200*time.Millisecond {
			t.Errorf("waited %v", waited)
		}
		if asked := len(store.made()); asked > 70 {
			t.Errorf("%d calls of the store in 5 s", asked)
		}
		refused, err := there.Acquire(ctx, "k", 1)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 10*time.Second ||
			refused.Allowed() {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		noErr(t, r.Cancel(t.Context()))
	})
}

// TestAcquireOfLost: a call that waits for units that this process holds rarely asks the store. It
// begins soon when the reservation has lost them, or some of them, by a reset elsewhere.
func TestAcquireOfLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &mapStore{}
		calls, other := newCalls(t, store, 1), newCalls(t, store, 1)
		rest := newBudgets(t, store, ratelimit.PerHour("rest", 1))
		lost, err := ratelimit.ReserveAll(t.Context(), claim(calls, 1), claim(rest, 1))
		noErr(t, err)
		store.made()
		began := time.Now()
		time.AfterFunc(10*time.Second, func() {
			if asked := len(store.made()); asked > 1+10_000/1280 {
				t.Errorf("%d calls of the store in 10 s", asked)
			}
			noErr(t, other.Reset(context.Background(), "k"))
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r, err := calls.Acquire(ctx, "k", 1)
		if waited := time.Since(began); waited < 10*time.Second || waited > 11500*time.Millisecond {
			t.Fatalf("%v after %v, want an answer soon after the reset", err, waited)
		}
		noErr(t, r.Cancel(t.Context()))
		noErr(t, lost.Cancel(t.Context()))
	})
}

// TestAcquirePart: calls that a part is enough for begin as soon as that part fits beside what this
// process holds.
func TestAcquirePart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := newCalls(t, &mapStore{}, 4)
		var held []*ratelimit.Reservation
		for range 2 {
			r, err := calls.Reserve(t.Context(), "k", 2)
			noErr(t, err)
			held = append(held, r)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				r, err := ratelimit.AcquireAll(ctx,
					ratelimit.Claim{Limiter: calls, Key: "k", N: 4, Least: 2})
				if err != nil || r.Result().Units != 2 {
					t.Errorf("%+v, %v; want 2 units", r, err)
				}
				<-ctx.Done()
				runtime.KeepAlive(r)
			})
			synctest.Wait()
		}
		for _, r := range held {
			noErr(t, r.Cancel(t.Context()))
			synctest.Wait()
		}
		if here := ratelimit.HeldHere(calls)["k"]; here != 4 {
			t.Errorf("%d units are counted as held, want 4", here)
		}
		wg.Wait()
	})
}

// TestAcquireAfterReset: a reset in this process ends a wait for what this process held.
func TestAcquireAfterReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := newCalls(t, &mapStore{}, 1)
		lost := mustAcquire(t, calls)
		began := time.Now()
		time.AfterFunc(time.Second, func() { noErr(t, calls.Reset(context.Background(), "k")) })
		next := mustAcquire(t, calls)
		if waited := time.Since(began); waited != time.Second {
			t.Errorf("waited %v, want until the reset", waited)
		}
		noErr(t, lost.Cancel(t.Context()))
		noErr(t, next.Cancel(t.Context()))
		if held := ratelimit.HeldHere(calls); len(held) > 0 {
			t.Errorf("held at the end: %v", held)
		}
	})
}

// TestAcquireCounts: at most Max calls are in flight at any time, and all calls run in the end.
func TestAcquireCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most, callers = 7, 200
		store := &mapStore{}
		clients := []*ratelimit.Limiter{newCalls(t, store, most), newCalls(t, store, most)}
		var running, highest atomic.Int64
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				r := mustAcquire(t, clients[i%2])
				highest.Store(max(highest.Load(), running.Add(1)))
				time.Sleep(time.Duration(i%50+1) * time.Millisecond)
				running.Add(-1)
				noErr(t, r.Cancel(t.Context()))
			})
		}
		wg.Wait()
		if highest.Load() != most {
			t.Errorf("%d calls in flight at once, want %d", highest.Load(), most)
		}
	})
}

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

// workers acquire one unit after the other, and hold each for a time. Then they may rest.
type workers struct {
	hold, rest time.Duration

	admitted int           // in all
	longest  time.Duration // wait
}

// work begins n workers that acquire claims until ctx ends.
func (w *workers) work(
	ctx context.Context, t *testing.T, wg *sync.WaitGroup, n int, claims ...ratelimit.Claim,
) {
	var mu sync.Mutex
	for range n {
		wg.Go(func() {
			for {
				began := time.Now()
				r, err := ratelimit.AcquireAll(ctx, claims...)
				mu.Lock()
				w.longest = max(w.longest, time.Since(began))
				if err == nil {
					w.admitted++
				}
				mu.Unlock()
				if err != nil {
					return
				}
				time.Sleep(w.hold)
				noErr(t, r.Cancel(t.Context()))
				time.Sleep(w.rest)
			}
		})
	}
}

// TestAcquireLeavesUnits: a process that always has calls that wait leaves released units to other
// processes every 2.56 s, for 160 ms. Alone, it admits at most a seventeenth less by that.
func TestAcquireLeavesUnits(t *testing.T) {
	for _, tt := range []leftUnits{
		{1, 10 * time.Millisecond, 15 * time.Second, false},
		{1, 10 * time.Millisecond, 15 * time.Second, true},
		{8, 10 * time.Millisecond, 15 * time.Second, false},
		{1, time.Second, 2 * time.Minute, false},
		{8, time.Second, 2 * time.Minute, false},
		{8, time.Second, 2 * time.Minute, true},
		{1, 5 * time.Second, 10 * time.Minute, false},
	} {
		for _, elsewhere := range []int{0, 1, tt.most + 3} {
			t.Run(fmt.Sprintf("%d held for %v, %d elsewhere, with a budget %t",
				tt.most, tt.hold, elsewhere, tt.budget), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { tt.test(t, elsewhere) })
			})
		}
	}
}

// leftUnits are calls in flight that a process holds all the time.
type leftUnits struct {
	most   int
	hold   time.Duration // of each
	lasts  time.Duration
	budget bool // is claimed too
}

func (tt leftUnits) claims(t *testing.T, store ratelimit.Store) (claims []ratelimit.Claim) {
	if tt.budget {
		budget := newBudgets(t, store, ratelimit.PerHour("money", 1_000_000))
		claims = append(claims, claim(budget, 1))
	}
	return append(claims, claim(newCalls(t, store, int64(tt.most)), 1))
}

func (tt leftUnits) test(t *testing.T, elsewhere int) {
	store, err := memorystore.New(nil)
	noErr(t, err)
	defer store.Close()
	ctx, cancel := context.WithTimeout(t.Context(), tt.lasts)
	defer cancel()
	here, there := workers{hold: tt.hold}, workers{hold: tt.hold}
	if elsewhere == 1 { // waits for one unit now and then
		there.rest = time.Second
	}
	var wg sync.WaitGroup
	here.work(ctx, t, &wg, tt.most+3, tt.claims(t, store)...)
	time.Sleep(time.Second)
	there.work(ctx, t, &wg, elsewhere, tt.claims(t, store)...)
	wg.Wait()

	part := float64(here.admitted) / float64(tt.lasts/tt.hold) / float64(tt.most)
	t.Logf("%.3f of what the limit admits, and %d elsewhere after %v at most",
		part, there.admitted, there.longest)
	most := 2560*time.Millisecond + 2*tt.hold + 500*time.Millisecond
	switch {
	case elsewhere == 0 && part < 16./17-0.005:
		t.Errorf("%.3f of what the limit admits, want 16/17", part)
	case elsewhere == 1 && there.longest > most:
		t.Errorf("another process waited for %v, want %v at most", there.longest, most)
	case elsewhere > 1 && (there.admitted < here.admitted/3 || here.admitted < there.admitted/3):
		t.Errorf("another process got %d, this one %d", there.admitted, here.admitted)
	}
}

// TestAcquireAfterResetElsewhere: after another process has reset the key, calls that wait for what
// this process has held begin within one and a half seconds, although each waits for a second
// only, and further ones as soon as a unit is released.
func TestAcquireAfterResetElsewhere(t *testing.T) {
	for _, budget := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := new(mapStore)
			newLimiter := func() *ratelimit.Limiter {
				if budget {
					return newBudgets(t, store, ratelimit.PerHour("hour", 2))
				}
				l, err := ratelimit.New(store, algorithm.InFlight("calls", 2))
				noErr(t, err)
				return l
			}
			here, there := newLimiter(), newLimiter()
			lost := []*ratelimit.Reservation{mustAcquire(t, here), mustAcquire(t, here)}
			time.Sleep(time.Second)
			noErr(t, there.Reset(t.Context(), "k"))
			began := time.Now()
			var r *ratelimit.Reservation
			for r == nil || !r.Allowed() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				r, _ = here.Acquire(ctx, "k", 2)
				cancel()
				if time.Since(began) > 1500*time.Millisecond && !r.Allowed() {
					t.Fatalf("refused until %v after the reset", time.Since(began))
				}
			}
			time.Sleep(time.Second / 2)
			released := time.AfterFunc(time.Second/2, func() { noErr(t, r.Cancel(t.Context())) })
			defer released.Stop()
			began = time.Now()
			next := mustAcquire(t, here)
			if waited := time.Since(began); waited > time.Second/2 {
				t.Errorf("waited %v for a unit that was released after half a second", waited)
			}
			noErr(t, next.Cancel(t.Context()))
			for _, r := range lost {
				noErr(t, r.Cancel(t.Context()))
			}
			if held := ratelimit.HeldHere(here); len(held) > 0 {
				t.Errorf("held at the end: %v", held)
			}
		})
	}
}
