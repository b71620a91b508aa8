package layer_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/layer"
)

const short = 20 * time.Millisecond // what the callers allow, of the store's 100 ms

func newDelayed(t *testing.T, latency time.Duration) (*delayed, *layer.Breaker) {
	t.Helper()
	inner := &delayed{Store: newOutage(t)}
	inner.latency.Store(int64(latency))
	b, err := layer.NewBreaker(inner, nil)
	if err != nil {
		t.Fatal(err)
	}
	return inner, b
}

// callers runs n callers whose calls have the timeout within, until stop is called.
func callers(t *testing.T, s driver.Store, n int, within time.Duration) (stop func()) {
	var wg sync.WaitGroup
	end := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			for {
				select {
				case <-end:
					return
				case <-time.After(time.Millisecond):
				}
				ctx, cancel := context.WithTimeout(t.Context(), within)
				if i%2 == 0 {
					_, _ = s.Take(ctx, demand(driver.OpTake))
				} else {
					_ = s.TakeAll(ctx, []driver.Demand{demand(driver.OpTake)},
						make([]driver.Result, 1))
				}
				cancel()
			}
		})
	}
	return func() { close(end); wg.Wait() }
}

// TestBreakerShortDeadlines: callers that allow less time than a healthy store needs open no
// breaker and count as no failure. The breaker peeks itself at most once a pause.
func TestBreakerShortDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, b := newDelayed(t, 5*time.Millisecond)
		stop := callers(t, b, 25, 100*time.Microsecond) // enough to open it, if they were failures
		time.Sleep(4 * breakerPause)
		stop()
		if got := b.Stats().State; got != layer.BreakerClosed {
			t.Errorf("the breaker is %v", got)
		}
		if got := b.Stats(); got != (layer.BreakerStats{State: layer.BreakerClosed}) {
			t.Errorf("%+v, want none", got)
		}
		if got := inner.peeks.Load(); got < 4 || got > 5 {
			t.Errorf("%d peeks in 4 pauses", got)
		}
		if b.Failing() {
			t.Error("calls take a lock")
		}
		if _, err := b.Take(t.Context(), demand(driver.OpTake)); err != nil {
			t.Error(err)
		}
	})
}

// TestBreakerFrozenBehindShortDeadlines: a store that does not answer is detected although all
// deadlines are shorter than the store's own timeout. Then other callers get an answer at once.
func TestBreakerFrozenBehindShortDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, b := newDelayed(t, time.Hour)
		local, err := layer.NewDegraded(b, &layer.DegradedOptions{Instances: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer local.Close()
		stop := callers(t, local, 25, short)
		time.Sleep(time.Second)
		if got := b.Stats(); got.Opened == 0 {
			t.Fatalf("%v after a second: %+v", b.Stats().State, got)
		}
		for b.Stats().State != layer.BreakerOpen { // it tries the store now and then
			time.Sleep(10 * time.Millisecond)
		}
		if res, err := local.Take(t.Context(), demand(driver.OpPeek)); err != nil ||
			res.Source != driver.SourceLocal {
			t.Errorf("Degraded: %+v, %v", res, err)
		}
		limiter, err := ratelimit.New(b, perMinute)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), short)
		defer cancel()
		begin := time.Now()
		if res, err := limiter.WithPolicy(ratelimit.FailOpen).Allow(ctx, "k"); err != nil ||
			res.Source != driver.SourceOpen {
			t.Errorf("FailOpen: %+v, %v", res, err)
		}
		if took := time.Since(begin); took > 0 {
			t.Errorf("an open breaker answers after %v", took)
		}

		inner.latency.Store(int64(time.Millisecond))
		time.Sleep(3 * breakerPause)
		if got := b.Stats().State; got != layer.BreakerClosed {
			t.Errorf("%v after the store has recovered", got)
		}
		stop()
	})
}

// TestBreakerPeekCountsForFew: a peek that fails counts for the abandoned calls, and no more. A
// breaker that opens after 20 failures stays closed after one abandoned call.
func TestBreakerPeekCountsForFew(t *testing.T) {
	for _, panics := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			inner, b := newDelayed(t, time.Hour)
			inner.panics.Store(panics)
			ctx, cancel := context.WithTimeout(t.Context(), short)
			defer cancel()
			if _, err := b.Take(ctx,
				demand(driver.OpTake)); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			if got := b.Stats(); got.Failures != 1 || got.Opened != 0 || inner.peeks.Load() != 1 {
				t.Errorf("%+v after one peek of %d", got, inner.peeks.Load())
			}
			if got := b.Stats().LastFailure; !errors.Is(got, driver.ErrUnavailable) ||
				strings.Contains(got.Error(), "panicked") != panics ||
				strings.Contains(got.Error(), "planted") {
				t.Errorf("LastFailure: %v", got)
			}
			inner.latency.Store(0)
			if _, err := b.Take(t.Context(), demand(driver.OpTake)); err != nil || b.Failing() {
				t.Errorf("%v, failing %t", err, b.Failing())
			}
		})
	}
}

// TestBreakerOneSlowAnswer: a store that does not answer one peek in time is not unavailable,
// however many callers with short deadlines there are.
func TestBreakerOneSlowAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, b := newDelayed(t, time.Hour)
		stop := callers(t, b, 25, short)
		for b.Stats().Failures == 0 {
			time.Sleep(time.Millisecond)
		}
		inner.latency.Store(int64(time.Millisecond))
		time.Sleep(time.Second)
		stop()
		if got := b.Stats(); got.Failures != 1 || got.Opened != 0 || b.Failing() {
			t.Errorf("%+v, failing %t", got, b.Failing())
		}
	})
}

// TestBreakerAnswersDuringPeek: calls that the store answers while a peek waits show that it works,
// so the calls abandoned before no longer count.
func TestBreakerAnswersDuringPeek(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, b := newDelayed(t, time.Hour)
		if _, err := b.Take(t.Context(), demand(driver.OpTake)); err == nil {
			t.Fatal("no failure")
		}
		stop := callers(t, b, 25, short)
		time.Sleep(short + 70*time.Millisecond) // the peek waits
		stop()
		inner.latency.Store(0)
		if _, err := b.Take(t.Context(), demand(driver.OpTake)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if got := b.Stats().State; got != layer.BreakerClosed || inner.peeks.Load() != 1 {
			t.Errorf("%v after %d peeks", got, inner.peeks.Load())
		}
	})
}
