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
		fmt.Println(w.Code, w.Header().Get("Retry-After"), w.Body)
	}
	// Output:
	// 200  hello
	// 200  hello
	// 429 3600 {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":429,"violated-policies":["hour"]}
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
