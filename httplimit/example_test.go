package httplimit_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/clientip"
	"github.com/truewindow/ratelimit/httplimit"
)

func ExampleHandler() {
	store, err := memorystore.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	limiter, err := ratelimit.New(store, algorithm.SlidingLog(ratelimit.PerHour("hour", 2)))
	if err != nil {
		log.Fatal(err)
	}

	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "hello")
	})
	handler := httplimit.Handler(limiter, clientip.RemoteAddr, hello)

	for range 3 {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		fmt.Println(w.Code, w.Header().Get("Retry-After"), w.Header().Get("Content-Type"))
	}
	// Output:
	// 200  text/plain; charset=utf-8
	// 200  text/plain; charset=utf-8
	// 429 3600 application/problem+json
}

// Any function of the request makes a key: here the user that an earlier handler has authenticated.
func ExampleKeyFunc() {
	byUser := func(r *http.Request) (string, error) {
		user, _, ok := r.BasicAuth()
		if !ok {
			return "", fmt.Errorf("no user")
		}
		return "user:" + user, nil
	}

	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.SetBasicAuth("ann", "…")
	fmt.Println(byUser(r))
	// Output: user:ann <nil>
}
