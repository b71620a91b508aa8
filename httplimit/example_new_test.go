package httplimit_test

import (
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/httplimit"
	"github.com/truewindow/ratelimit/httplimit/headers"
)

// limiters returns a store and a function that makes limiters on it.
func limiters() (*memorystore.Store, func(...ratelimit.Limit) *ratelimit.Limiter) {
	store, err := memorystore.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	return store, func(limits ...ratelimit.Limit) *ratelimit.Limiter {
		var algorithms []ratelimit.Algorithm
		for _, limit := range limits {
			algorithms = append(algorithms, algorithm.SlidingLog(limit))
		}
		limiter, err := ratelimit.New(store, algorithms...)
		if err != nil {
			log.Fatal(err)
		}
		return limiter
	}
}

// hello is a handler that only says hello.
var hello = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprint(w, "hello")
})

// request makes a request of a user to h.
func request(h http.Handler, method, path, user string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	r.Header.Set("User", user)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// Plans of users, costs of routes and exemptions are code in one function.
func ExampleNew() {
	store, newLimiter := limiters()
	defer store.Close()
	plans := map[string]*ratelimit.Limiter{
		"free": newLimiter(ratelimit.PerSecond("free-burst", 5), ratelimit.PerHour("free", 8)),
		"paid": newLimiter(ratelimit.PerSecond("paid-burst", 50), ratelimit.PerHour("paid", 1000)),
	}
	planOf := map[string]string{"ann": "free", "bob": "paid"}          // of authenticated users
	costs := map[string]int64{"GET /items/{id}": 1, "POST /export": 4} // of routes

	limit := httplimit.New(func(r *http.Request) ([]ratelimit.Claim, error) {
		user := r.Header.Get("User")
		plan, ok := plans[planOf[user]]
		if !ok {
			return nil, errors.New("unknown user")
		}
		route, err := httplimit.Route(r)
		if err != nil {
			return nil, err
		}
		cost, ok := costs[route]
		if !ok {
			return nil, fmt.Errorf("route %q has no cost", route)
		}
		return []ratelimit.Claim{{Limiter: plan, Key: user, N: cost}}, nil
	})
	mux := http.NewServeMux()
	mux.Handle("GET /items/{id}", limit(hello))
	mux.Handle("POST /export", limit(hello))
	mux.Handle("GET /health", hello)
	mux.Handle("POST /imports", limit(hello)) // has no cost

	for _, r := range []struct{ method, path, user string }{
		{"GET", "/items/7", "ann"}, {"POST", "/export", "ann"}, {"POST", "/export", "ann"},
		{"POST", "/export", "bob"}, {"POST", "/imports", "bob"}, {"GET", "/items/7", ""},
		{"GET", "/health", ""},
	} {
		w := request(mux, r.method, r.path, r.user)
		fmt.Println(w.Header().Get("RateLimit-Policy"), r.user, r.method, r.path, w.Code)
	}
	// Output:
	// "free-burst";q=5;w=1, "free";q=8;w=3600 ann GET /items/7 200
	// "free-burst";q=5;w=1, "free";q=8;w=3600 ann POST /export 200
	// "free-burst";q=5;w=1, "free";q=8;w=3600 ann POST /export 429
	// "paid-burst";q=50;w=1, "paid";q=1000;w=3600 bob POST /export 200
	//  bob POST /imports 400
	//   GET /items/7 400
	//   GET /health 200
}

// A request counts for its user and for the user's tenant, or for neither.
func ExampleNew_tenantAndUser() {
	store, newLimiter := limiters()
	defer store.Close()
	users := newLimiter(ratelimit.PerHour("user", 2))
	tenants := newLimiter(ratelimit.PerHour("tenant", 3))
	tenantOf := map[string]string{"ann": "acme", "bob": "acme"} // of authenticated users

	limit := httplimit.New(func(r *http.Request) ([]ratelimit.Claim, error) {
		user := r.Header.Get("User")
		tenant := tenantOf[user]
		return []ratelimit.Claim{
			{Limiter: users, Key: httplimit.JoinKeys(tenant, user), N: 1},
			{Limiter: tenants, Key: tenant, N: 1},
		}, nil
	})
	handler := limit(hello)

	for _, user := range []string{"ann", "ann", "ann", "bob", "bob"} {
		w := request(handler, "GET", "/", user)
		fmt.Println(user, w.Code, w.Header().Get("RateLimit"))
	}
	// Output:
	// ann 200 "user";r=1;t=3600, "tenant";r=2;t=3600
	// ann 200 "user";r=0;t=3600, "tenant";r=1;t=3600
	// ann 429 "user";r=0;t=3600, "tenant";r=1;t=3600
	// bob 200 "user";r=1;t=3600, "tenant";r=0;t=3600
	// bob 429 "user";r=1;t=3600, "tenant";r=0;t=3600
}

// Only failed logins count: the others give their unit back when they end.
func ExampleWithCounting() {
	store, _ := limiters()
	defer store.Close()
	failures, err := ratelimit.New(store,
		algorithm.Budget(algorithm.SlidingLog(ratelimit.PerHour("failed-logins", 2))))
	if err != nil {
		log.Fatal(err)
	}
	login := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("password") != "sesame" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	handler := httplimit.New(httplimit.PerKey(failures, httplimit.Header("User")),
		httplimit.WithCounting(func(status int) bool { return status == http.StatusUnauthorized }),
	)(login)

	for _, password := range []string{"sesame", "sesame", "sesame", "guess", "guess", "guess"} {
		fmt.Print(request(handler, "POST", "/?password="+password, "ann").Code, " ")
	}
	// Output: 200 200 200 401 401 429
}

// A custom answer to requests that a limit refuses: plain text. The default answers the requests
// that are undecided.
func ExampleWithRefusal() {
	store, newLimiter := limiters()
	defer store.Close()
	limiter := newLimiter(ratelimit.PerHour("hour", 1))
	handler := httplimit.New(httplimit.PerKey(limiter, httplimit.Header("User")),
		httplimit.WithRefusal(func(w http.ResponseWriter, r *http.Request, d httplimit.Decision) {
			if d.Err != nil {
				httplimit.Refuse(w, d)
				return
			}
			w.Header().Set("Cache-Control", "no-store")
			w.WriteHeader(d.Status())
			fmt.Fprintf(w, "%s has to wait until %v from now", r.URL.Path,
				d.RetryAfter().Round(time.Second))
		}),
	)(hello)

	for range 2 {
		w := request(handler, "GET", "/items", "ann")
		fmt.Println(w.Code, w.Body)
	}
	// Output:
	// 200 hello
	// 429 /items has to wait until 1h0m0s from now
}

// Clients that read older fields get those instead.
func ExampleWithFormat() {
	store, newLimiter := limiters()
	defer store.Close()
	limiter := newLimiter(ratelimit.PerHour("hour", 10))
	handler := httplimit.New(httplimit.PerKey(limiter, httplimit.Header("User")),
		httplimit.WithFormat(headers.XDelta), httplimit.WithExposed())(hello)

	h := request(handler, "GET", "/", "ann").Header()
	fmt.Println(h.Get("X-RateLimit-Limit"), h.Get("X-RateLimit-Remaining"),
		h.Get("X-RateLimit-Reset"))
	fmt.Println(h.Get("Access-Control-Expose-Headers"))
	// Output:
	// 10 9 3600
	// X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, Retry-After
}

// A rate and a limit of calls in flight, decided together. The call in flight is released when the
// handler returns.
func ExampleNew_inFlight() {
	store, newLimiter := limiters()
	defer store.Close()
	rate := newLimiter(ratelimit.PerHour("hour", 100))
	calls, err := ratelimit.New(store, algorithm.InFlight("calls", 1))
	if err != nil {
		log.Fatal(err)
	}
	limit := httplimit.New(func(r *http.Request) ([]ratelimit.Claim, error) {
		user, err := httplimit.Header("User")(r)
		return []ratelimit.Claim{
			{Limiter: rate, Key: user, N: 1}, {Limiter: calls, Key: user, N: 1},
		}, err
	})
	var handler http.Handler
	handler = limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			w := request(handler, "GET", "/", "ann") // while the first is in flight
			fmt.Println(w.Code, w.Header().Get("RateLimit"))
		}
	}))

	for _, path := range []string{"/slow", "/"} {
		w := request(handler, "GET", path, "ann")
		fmt.Println(w.Code, w.Header().Get("RateLimit"))
	}
	// Output:
	// 429 "hour";r=99;t=3600, "calls";r=0
	// 200 "hour";r=99;t=3600
	// 200 "hour";r=98;t=3600
}

// Handlers get the decision from the context of the request.
func ExampleFromContext() {
	store, newLimiter := limiters()
	defer store.Close()
	limiter := newLimiter(ratelimit.PerHour("hour", 10))
	handler := httplimit.Handler(limiter, httplimit.Header("User"),
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if d, ok := httplimit.FromContext(r.Context()); ok {
				res := d.Results[0]
				fmt.Fprintf(w, "%d of %d left", res.Remaining, res.Limit.Max)
			}
		}))
	fmt.Println(request(handler, "GET", "/", "ann").Body)
	// Output: 9 of 10 left
}
