package httplimit_test

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/httplimit"
	"github.com/truewindow/ratelimit/httplimit/problem"
)

// spread tells clients to wait for up to ten seconds longer than they must, at random.
func spread(w http.ResponseWriter, _ *http.Request, d httplimit.Decision) {
	if wait := d.RetryAfter(); wait > 0 {
		problem.SetRetryAfter(w.Header(), wait+rand.N(10*time.Second))
	}
	httplimit.Refuse(w, d)
}

// TestRecipeSpread: clients that were refused together do not come back together, nor too early.
func TestRecipeSpread(t *testing.T) {
	const clients, most, window = 60, 10, 10 * time.Second
	synctest.Test(t, func(t *testing.T) {
		store, newLimiter := limiters()
		defer store.Close()
		limiter := newLimiter(ratelimit.Limit{Name: "w", Max: most, Window: window})
		var mu sync.Mutex
		requests, admitted := make(map[time.Duration]int), make(map[time.Duration]int)
		began := time.Now()
		handler := httplimit.New(httplimit.PerKey(limiter, httplimit.Header("User")),
			httplimit.WithRefusal(func(w http.ResponseWriter, r *http.Request,
				d httplimit.Decision) {
				spread(w, r, d)
				if got := retryAfter(t, w); got < d.RetryAfter() {
					t.Errorf("Retry-After is %v, want at least %v", got, d.RetryAfter())
				}
			}))(hello)
		var wg sync.WaitGroup
		for range clients {
			wg.Go(func() {
				for {
					w := request(handler, "GET", "/", "ann")
					mu.Lock()
					requests[time.Since(began)]++
					if w.Code == http.StatusOK {
						admitted[time.Since(began)]++
						mu.Unlock()
						return
					}
					mu.Unlock()
					time.Sleep(retryAfter(t, w))
				}
			})
		}
		wg.Wait()
		total := 0
		for at, n := range admitted {
			total += n
			in := 0 // the window that ends then
			for other, n := range admitted {
				if other <= at && other > at-window {
					in += n
				}
			}
			if in > most {
				t.Errorf("%d admitted in a window", in)
			}
		}
		if total != clients {
			t.Errorf("%d admitted, want %d", total, clients)
		}
		for at, n := range requests {
			if at > 0 && n > (clients-most)/2 {
				t.Errorf("%d requests after %v", n, at)
			}
		}
		t.Log(requests)
	})
}

func retryAfter(t *testing.T, w http.ResponseWriter) time.Duration {
	seconds, err := strconv.Atoi(w.Header().Get("Retry-After"))
	if err != nil {
		t.Error(err)
	}
	return time.Duration(seconds) * time.Second
}
