package daemon

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit/cmd/ratelimit/httpapi"
	"github.com/truewindow/ratelimit/cmd/ratelimit/internal/apitest"
)

// TestDrain: after the signal the service is not ready and answers for as long as --drain.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener, ready := newPipeListener(), httpapi.NewReadiness(nil)
		var statuses []int
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked := httptest.NewRecorder()
			ready.Answer(asked, r)
			statuses = append(statuses, asked.Code)
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			ended <- serve(ctx, []server{{testServer(handler), listener}}, ready,
				5*time.Second, apitest.Discard)
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
				{testServer(handler), other}}, httpapi.NewReadiness(nil), time.Second,
				apitest.Discard)
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
