package detached

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

func newCalls() *Calls { return &Calls{Max: 64, Prefix: "test"} }

func TestAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := newCalls()
		boom := errors.New("boom")
		for _, want := range []error{nil, boom} {
			n, err := Do(t.Context(), calls, time.Second, func(ctx context.Context) (int, error) {
				if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) != time.Second {
					t.Error("the call does not have the deadline")
				}
				return 5, want
			})
			if n != 5 || err != want {
				t.Errorf("Do = %d, %v, want %v", n, err, want)
			}
		}
	})
}

func TestAbandoned(t *testing.T) {
	for _, tt := range []struct {
		what    string
		context func(context.Context) (context.Context, context.CancelFunc)
		after   time.Duration
		cause   error
	}{
		{"timeout", context.WithCancel, time.Second, context.DeadlineExceeded},
		{"earlier deadline", timeout(time.Millisecond), time.Millisecond, context.DeadlineExceeded},
		{"later deadline", timeout(time.Hour), time.Second, context.DeadlineExceeded},
		{"cancelled", cancelled(time.Millisecond), time.Millisecond, context.Canceled},
	} {
		t.Run(tt.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls := newCalls()
				hang := make(chan struct{})
				ctx, cancel := tt.context(t.Context())
				defer cancel()
				start := time.Now()
				n, err := Do(ctx, calls, time.Second, func(context.Context) (int, error) {
					<-hang
					return 1, nil
				})
				if n != 0 || time.Since(start) != tt.after {
					t.Errorf("%d after %v, want 0 after %v", n, time.Since(start), tt.after)
				}
				if !errors.Is(err, driver.ErrUnavailable) || !errors.Is(err, tt.cause) {
					t.Errorf("%v does not wrap %v", err, tt.cause)
				}
				if n := calls.Abandoned(); n != 1 {
					t.Errorf("%d abandoned calls, want 1", n)
				}
				close(hang)
				synctest.Wait()
				if n := calls.Abandoned(); n != 0 {
					t.Errorf("%d abandoned calls after the client returned", n)
				}
			})
		})
	}
}

func timeout(d time.Duration) func(context.Context) (context.Context, context.CancelFunc) {
	return func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, d)
	}
}

func cancelled(after time.Duration) func(context.Context) (context.Context, context.CancelFunc) {
	return func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(after, cancel)
		return ctx, cancel
	}
}

// TestBound: no more calls are begun once Max go on without their callers.
func TestBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := newCalls()
		var begun atomic.Int64
		hang := make(chan struct{})
		for range calls.Max + 10 {
			go Do(t.Context(), calls, time.Second, func(context.Context) (int, error) {
				begun.Add(1)
				<-hang
				return 0, nil
			})
			time.Sleep(time.Second)
			synctest.Wait()
		}
		if n := begun.Load(); n != calls.Max || calls.Refused() != 10 {
			t.Errorf("%d calls begun and %d refused, want %d and 10", n, calls.Refused(), calls.Max)
		}
		none := func(context.Context) (int, error) { return 0, nil }
		if _, err := Do(t.Context(), calls, time.Second,
			none); !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("%v, want ErrUnavailable", err)
		}
		close(hang)
		synctest.Wait()
		if _, err := Do(t.Context(), calls, time.Second, none); err != nil {
			t.Errorf("after the client returned: %v", err)
		}
	})
}

func TestPanicIsPassedOn(t *testing.T) {
	defer func() {
		if got := recover(); got != "hook" {
			t.Errorf("recovered %v", got)
		}
	}()
	_, _ = Do(t.Context(), newCalls(), time.Minute,
		func(context.Context) (int, error) { panic("hook") })
	t.Error("no panic")
}

// TestEndsTogether: callers stop waiting as clients return. Each gets the value or an error, and no
// call is counted as abandoned for ever.
func TestEndsTogether(t *testing.T) {
	calls := &Calls{Max: 1 << 20}
	for i := range 2000 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%50)*time.Microsecond)
		n, err := Do(ctx, calls, time.Minute, func(ctx context.Context) (int, error) {
			<-ctx.Done()
			return 1, nil
		})
		if (n == 1) != (err == nil) {
			t.Fatalf("%d, %v", n, err)
		}
		cancel()
	}
	for deadline := time.Now().
		Add(10 * time.Second); calls.Abandoned() != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d abandoned calls", calls.Abandoned())
		}
	}
}
