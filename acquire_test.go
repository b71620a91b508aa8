package ratelimit_test

import (
	"context"
	"errors"
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
		time.AfterFunc(5*time.Second, func() { _ = held.Release(context.Background()) })
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
				noErr(t, r.Release(t.Context()))
			})
		}
		wg.Wait()
		if highest.Load() != most {
			t.Errorf("%d calls in flight at once, want %d", highest.Load(), most)
		}
	})
}
