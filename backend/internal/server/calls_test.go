package server

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
)

func TestCallAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls Calls
		var gate Gate
		boom := errors.New("boom")
		for _, want := range []error{nil, boom} {
			left, err := calls.Do(t.Context(), time.Second, &gate, func(ctx context.Context) error {
				if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) != time.Second {
					t.Error("the call does not know the deadline")
				}
				return want
			})
			if left || err != want {
				t.Errorf("Do = %t, %v, want %v", left, err, want)
			}
		}
	})
}

func TestCallerLeaves(t *testing.T) {
	for _, tt := range []struct {
		what    string
		before  func(*Gate) // what the client does before it hangs
		context func(context.Context) (context.Context, context.CancelFunc)
		after   time.Duration
		unknown bool
		cause   error
	}{
		{"nothing sent", func(*Gate) {}, nil, time.Second, false, context.DeadlineExceeded},
		{"sent", func(g *Gate) { g.Open() }, nil, time.Second, true, context.DeadlineExceeded},
		{"sent and not run", func(g *Gate) { g.Open(); g.Shut() }, nil, time.Second, false, context.DeadlineExceeded},
		{"earlier deadline", func(g *Gate) { g.Open() }, timeout(time.Millisecond), time.Millisecond, true, context.DeadlineExceeded},
		{"later deadline", func(g *Gate) { g.Open() }, timeout(time.Hour), time.Second, true, context.DeadlineExceeded},
		{"cancelled", func(g *Gate) { g.Open() }, cancelled(time.Millisecond), time.Millisecond, true, context.Canceled},
	} {
		t.Run(tt.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var calls Calls
				var gate Gate
				hang := make(chan struct{})
				ctx, cancel := t.Context(), context.CancelFunc(func() {})
				if tt.context != nil {
					ctx, cancel = tt.context(ctx)
				}
				defer cancel()

				start := time.Now()
				left, err := calls.Do(ctx, time.Second, &gate, func(context.Context) error {
					tt.before(&gate)
					<-hang
					return nil
				})
				if !left || time.Since(start) != tt.after {
					t.Errorf("left %t after %v, want after %v", left, time.Since(start), tt.after)
				}
				if !errors.Is(err, ratelimit.ErrUnavailable) || errors.Is(err, ratelimit.ErrOutcomeUnknown) != tt.unknown {
					t.Errorf("%v; outcome unknown should be %t", err, tt.unknown)
				}
				if !errors.Is(err, tt.cause) {
					t.Errorf("%v does not wrap %v", err, tt.cause)
				}
				if gate.Open() {
					t.Error("the gate opens after the caller has left")
				}
				if n := calls.deserted.Load(); n != 1 {
					t.Errorf("%d deserted calls, want 1", n)
				}
				close(hang)
				synctest.Wait()
				if n := calls.deserted.Load(); n != 0 {
					t.Errorf("%d deserted calls after the client returned", n)
				}
			})
		})
	}
}

func timeout(d time.Duration) func(context.Context) (context.Context, context.CancelFunc) {
	return func(ctx context.Context) (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, d) }
}

func cancelled(after time.Duration) func(context.Context) (context.Context, context.CancelFunc) {
	return func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(after, cancel)
		return ctx, cancel
	}
}

func TestDesertedCallsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls Calls
		var begun atomic.Int64
		hang := make(chan struct{})
		for range maxDeserted + 100 {
			go calls.Do(t.Context(), time.Second, new(Gate), func(context.Context) error {
				begun.Add(1)
				<-hang
				return nil
			})
			time.Sleep(time.Second) // synthetic
			synctest.Wait()
		}
		if n := begun.Load(); n != maxDeserted {
			t.Errorf("%d calls begun, want %d", n, maxDeserted)
		}
		_, err := calls.Do(t.Context(), time.Second, new(Gate), func(context.Context) error { return nil })
		if !errors.Is(err, ratelimit.ErrUnavailable) || errors.Is(err, ratelimit.ErrOutcomeUnknown) {
			t.Errorf("%v, want ErrUnavailable", err)
		}
		close(hang)
		synctest.Wait()
		if _, err := calls.Do(t.Context(), time.Second, new(Gate), func(context.Context) error { return nil }); err != nil {
			t.Errorf("after the client returned: %v", err)
		}
	})
}

func TestPanicIsPassedOn(t *testing.T) {
	var calls Calls
	defer func() {
		if got := recover(); got != "hook" {
			t.Errorf("recovered %v", got)
		}
	}()
	calls.Do(t.Context(), time.Minute, new(Gate), func(context.Context) error { panic("hook") })
	t.Error("no panic")
}

// TestGateRace holds that a demand is never both reported as unsent and written.
func TestGateRace(t *testing.T) {
	for range 2000 {
		var gate Gate
		opened := make(chan bool)
		go func() { opened <- gate.Open() }()
		sent, _ := gate.leave()
		if wrote := <-opened; wrote && !sent {
			t.Fatal("written after the caller was told that nothing was sent")
		}
	}
}

// TestCallersLeaveAsClientsReturn runs the two against each other: no call is lost, and none is counted as deserted for ever.
func TestCallersLeaveAsClientsReturn(t *testing.T) {
	var calls Calls
	for i := range 2000 {
		var gate Gate
		value := 0
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%50)*time.Microsecond)
		left, err := calls.Do(ctx, time.Minute, &gate, func(ctx context.Context) error {
			<-ctx.Done()
			value = 1
			return nil
		})
		if !left && (err != nil || value != 1) {
			t.Fatalf("answer %d, %v", value, err)
		}
		cancel()
	}
	for deadline := time.Now().Add(10 * time.Second); calls.deserted.Load() != 0; {
		if time.Now().After(deadline) {
			t.Fatalf("%d deserted calls", calls.deserted.Load())
		}
	}
}
