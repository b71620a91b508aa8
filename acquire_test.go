package ratelimit_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
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
