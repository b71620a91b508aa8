package daemon

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// TestDrain: after the signal the service is not ready and answers for as long as --drain.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener, ready := newPipeListener(), newReadiness(nil)
		var statuses []int
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked := httptest.NewRecorder()
			ready.answer(asked, r)
			statuses = append(statuses, asked.Code)
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			ended <- serve(ctx, []server{{testServer(handler), listener}}, ready,
				5*time.Second, discard)
		}()
		ask := func() {
			if _, err := listener.get(); err != nil {
				t.Error(err)
			}
		}
		ask()
		cancel()
		synctest.Wait()
		ask()
		time.Sleep(5*time.Second - time.Nanosecond)
		ask()
		signal := time.Now()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if took := time.Since(signal); took > time.Second {
			t.Errorf("it ended %v after the drain", took)
		}
		if len(statuses) != 3 || statuses[0] != 200 || statuses[1] != 503 || statuses[2] != 503 {
			t.Errorf("statuses %v, want 200 503 503", statuses)
		}
	})
}

// TestDrainOfAll: when the drain ends, no listener accepts a connection, also while a request to
// another one is still in flight.
func TestDrainOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, other := newPipeListener(), newPipeListener()
		handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			time.Sleep(5 * time.Second)
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			ended <- serve(ctx, []server{{testServer(handler), slow},
				{testServer(handler), other}}, newReadiness(nil), time.Second, discard)
		}()
		go func() { _, _ = slow.get() }()
		synctest.Wait()
		cancel()
		time.Sleep(2 * time.Second)
		select {
		case <-other.closed:
		default:
			t.Error("a listener accepts connections after the drain")
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestRelease: while the service drains, clients are to close their connections.
func TestRelease(t *testing.T) {
	ready := newReadiness(nil)
	h := ready.release(http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) { writeOK(w) }))
	for _, want := range []string{"", "close"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/healthz", nil))
		if got := w.Header().Get("Connection"); got != want || w.Body.Len() == 0 {
			t.Errorf("Connection is %q after %q, want %q", got, w.Body, want)
		}
		ready.drain()
	}
}

// TestReadinessOfStore: the store is asked at most once a second.
func TestReadinessOfStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked int
		var err error
		r := newReadiness(func(ctx context.Context) error {
			asked++
			if _, ok := ctx.Deadline(); !ok {
				t.Error("the probe has no deadline")
			}
			return err
		})
		status := func() int {
			w := httptest.NewRecorder()
			r.answer(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
			return w.Code
		}
		for range 3 {
			if got := status(); got != http.StatusOK {
				t.Errorf("status %d", got)
			}
		}
		if asked != 1 {
			t.Errorf("asked %d times, want 1", asked)
		}
		err = errors.New("away")
		time.Sleep(probeAge + 1)
		if got := status(); got != http.StatusServiceUnavailable || asked != 2 {
			t.Errorf("status %d after %d probes, want 503 after 2", got, asked)
		}
	})
}
