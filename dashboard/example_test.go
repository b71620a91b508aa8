package dashboard_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/dashboard"
)

func Example() {
	store, err := memorystore.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	limiter, err := ratelimit.New(store, algorithm.SlidingLog(ratelimit.PerMinute("login", 60)))
	if err != nil {
		log.Fatal(err)
	}

	page, err := dashboard.New(&dashboard.Options{Store: store, Limits: limiter.Algorithms})
	if err != nil {
		log.Fatal(err)
	}
	defer page.Close()

	limiter = limiter.WithObserver(page.Observe)
	mux := http.NewServeMux()
	mux.Handle("/limits/", page) // behind your authentication

	if _, err := limiter.Allow(httptest.NewRequest("", "/", nil).Context(), "user:42"); err != nil {
		log.Fatal(err)
	}
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/limits/", nil))
	fmt.Println(w.Code, strings.Contains(w.Body.String(), "60 a minute for each key"))
	// Output: 200 true
}
