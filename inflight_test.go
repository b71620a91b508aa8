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

func newCalls(t *testing.T, store ratelimit.Store, most int64) *ratelimit.Limiter {
	t.Helper()
	calls, err := ratelimit.NewInFlight(store,
		naiveLog{ratelimit.Limit{Name: "calls", Max: most, Window: time.Minute}})
	noErr(t, err)
	return calls
}

func mustAcquire(t *testing.T, calls *ratelimit.Limiter) *ratelimit.Lease {
	t.Helper()
	lease, err := calls.Acquire(t.Context(), "k")
	if err != nil || !lease.Allowed() {
		t.Fatalf("%+v, %v", lease, err)
	}
	return lease
}

// TestInFlight: copies of a limiter of calls in flight are InFlight, too.
func TestInFlight(t *testing.T) {
	store := &mapStore{now: newClock().now}
	calls := newCalls(t, store, 1)
	if !calls.InFlight() || !calls.WithPolicy(ratelimit.FailOpen).InFlight() {
		t.Error("a limiter of calls in flight is not InFlight")
	}
	if newLimiter(t, store, ratelimit.PerMinute("minute", 1)).InFlight() {
		t.Error("another limiter is InFlight")
	}
}

// TestTryAcquire: a lease is held until it is released, once, or until the window ends.
func TestTryAcquire(t *testing.T) {
	clock := newClock()
	calls := newCalls(t, &mapStore{now: clock.now}, 2)
	try := func(want bool) *ratelimit.Lease {
		t.Helper()
		lease, err := calls.TryAcquire(t.Context(), "k")
		if err != nil || lease.Allowed() != want {
			t.Fatalf("%+v, %v; want allowed %t", lease.Result(), err, want)
		}
		return lease
	}
	first := try(true)
	clock.advance(time.Second)
	second := try(true)
	refused := try(false)
	if d := refused.Result().RetryAfter; d != 59*time.Second {
		t.Errorf("RetryAfter %v", d)
	}
	noErr(t, refused.Release(t.Context()))
	try(false)
	for range 2 {
		noErr(t, first.Release(t.Context()))
	}
	try(true)
	try(false) // the second release did nothing
	clock.advance(time.Minute)
	try(true) // the window of the second has ended
	try(true)
	noErr(t, second.Release(t.Context())) // too late
	try(false)
}

// TestLeaseToken: another process releases a lease from its token.
func TestLeaseToken(t *testing.T) {
	clock := newClock()
	calls := newCalls(t, &mapStore{now: clock.now}, 1)
	lease := mustAcquire(t, calls)
	text, err := lease.Token()
	noErr(t, err)
	resumed, err := ratelimit.Resume(text, calls)
	noErr(t, err)
	noErr(t, resumed.Cancel(t.Context()))
	noErr(t, mustAcquire(t, calls).Release(t.Context()))
	noErr(t, lease.Release(t.Context()))
	_, err = lease.Token()
	wantErr(t, err, ratelimit.ErrInvalid)
}

// TestAcquireNeedsInFlight: Acquire and TryAcquire fail on a limiter of a rate.
func TestAcquireNeedsInFlight(t *testing.T) {
	store := &mapStore{}
	limiter := newLimiter(t, store, ratelimit.PerMinute("requests", 1))
	_, err := limiter.Acquire(t.Context(), "k")
	wantErr(t, err, ratelimit.ErrInvalid)
	_, err = limiter.TryAcquire(t.Context(), "k")
	wantErr(t, err, ratelimit.ErrInvalid)
	wantCalls(t, store)
	_, err = ratelimit.NewInFlight(nil)
	wantErr(t, err, ratelimit.ErrInvalid)
}

// TestReservationReleases: a reservation releases its calls in flight, whatever was used.
func TestReservationReleases(t *testing.T) {
	b := newBudget(t)
	calls := newCalls(t, b.store, 1)
	for _, settle := range []func(*ratelimit.Reservation) error{
		func(r *ratelimit.Reservation) error { return r.Cancel(t.Context()) },
		func(r *ratelimit.Reservation) error { return r.Commit(t.Context()) },
		func(r *ratelimit.Reservation) error { return r.Commit(t.Context(), 5, 2) },
	} {
		r := mustReserve(t, b.claims(0, 10)[1], ratelimit.Claim{Limiter: calls, Key: "k", N: 1})
		if busy, err := calls.TryAcquire(t.Context(), "k"); err != nil || busy.Allowed() {
			t.Fatalf("%+v, %v", busy, err)
		}
		noErr(t, settle(r))
	}
	b.left(t, 3, 85)
}

// TestAcquireWaits: a call that waits begins as soon as another call of this process is released.
func TestAcquireWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := newCalls(t, &mapStore{}, 1)
		for _, release := range []func(*ratelimit.Lease){
			func(l *ratelimit.Lease) { noErr(t, l.Release(t.Context())) },
			func(l *ratelimit.Lease) { noErr(t, calls.GiveBack(t.Context(), "k", 1, l.Result())) },
		} {
			held := mustAcquire(t, calls)
			begun := make(chan time.Time)
			go func() {
				lease := mustAcquire(t, calls)
				begun <- time.Now()
				noErr(t, lease.Release(t.Context()))
				close(begun)
			}()
			time.Sleep(3*time.Second + time.Millisecond)
			synctest.Wait()
			released := time.Now()
			release(held)
			if at := <-begun; !at.Equal(released) {
				t.Errorf("acquired %v after the release", at.Sub(released))
			}
			<-begun
		}
	})
}

// TestAcquireAsksForOthers: a call that waits also begins soon after another process has released a
// unit, and does not give up because RetryAfter is beyond its deadline.
func TestAcquireAsksForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &mapStore{}
		here, there := newCalls(t, store, 1), newCalls(t, store, 1)
		held := mustAcquire(t, there)
		time.AfterFunc(5*time.Second, func() { _ = held.Release(context.Background()) })
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began := time.Now()
		lease, err := here.Acquire(ctx, "k")
		if err != nil || !lease.Allowed() {
			t.Fatalf("%+v, %v", lease, err)
		}
		if waited := time.Since(began); waited < 5*time.Second || waited > 5200*time.Millisecond {
			t.Errorf("waited %v", waited)
		}
		if asked := len(store.made()); asked > 70 {
			t.Errorf("%d calls of the store in 5 s", asked)
		}
		_, err = there.Acquire(ctx, "k")
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 10*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
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
				lease := mustAcquire(t, clients[i%2])
				highest.Store(max(highest.Load(), running.Add(1)))
				time.Sleep(time.Duration(i%50+1) * time.Millisecond)
				running.Add(-1)
				noErr(t, lease.Release(t.Context()))
			})
		}
		wg.Wait()
		if highest.Load() != most {
			t.Errorf("%d calls in flight at once, want %d", highest.Load(), most)
		}
	})
}

// TestRelease: calls in flight are released before the reservation is settled, those of extensions
// too, and the rest of it is settled afterwards.
func TestRelease(t *testing.T) {
	clock := newClock()
	store := &mapStore{now: clock.now}
	calls := newCalls(t, store, 2)
	tokens := newLimiter(t, store, ratelimit.PerMinute("tokens", 100))
	left := func(wantCalls, wantTokens int64) {
		t.Helper()
		results, err := ratelimit.PeekAll(t.Context(),
			ratelimit.Claim{Limiter: calls, Key: "k"}, ratelimit.Claim{Limiter: tokens, Key: "k"})
		noErr(t, err)
		if results[0].Remaining != wantCalls || results[1].Remaining != wantTokens {
			t.Errorf("%d calls and %d tokens are left, want %d and %d",
				results[0].Remaining, results[1].Remaining, wantCalls, wantTokens)
		}
	}
	r := mustReserve(t, ratelimit.Claim{Limiter: calls, Key: "k", N: 1},
		ratelimit.Claim{Limiter: tokens, Key: "k", N: 40})
	clock.advance(time.Second)
	_, err := r.Extend(t.Context(), 1, 20)
	noErr(t, err)
	left(0, 40)
	store.err = ratelimit.ErrUnavailable
	wantErr(t, r.Release(t.Context()), ratelimit.ErrUnavailable)
	store.err = nil
	for range 2 {
		noErr(t, r.Release(t.Context()))
		left(2, 40)
	}
	other := mustAcquire(t, calls)
	text, err := r.Token()
	noErr(t, err)
	r, err = ratelimit.Resume(text, tokens, calls)
	noErr(t, err)
	noErr(t, r.Commit(t.Context(), 2, 70))
	left(1, 30) // the other call is still in flight
	noErr(t, r.Release(t.Context()))
	left(1, 30)
	noErr(t, other.Release(t.Context()))
	left(2, 30)
}
