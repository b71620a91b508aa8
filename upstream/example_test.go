package upstream_test

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/truewindow/ratelimit"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/upstream"
)

// newStore stands for the store of a fleet, which is on a server.
func newStore() *memorystore.Store {
	store, err := memorystore.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	return store
}

// newAPI is an upstream that answers all requests with a status and fields.
func newAPI(status int, fields ...string) *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(fields); i += 2 {
			w.Header().Set(fields[i], fields[i+1])
		}
		w.WriteHeader(status)
	}))
}

// newClient returns a client whose requests take at most five seconds, waiting for their turn
// included.
func newClient(store ratelimit.Store) (*http.Client, error) {
	transport, err := upstream.New(store, nil,
		ratelimit.PerSecond("maps", 50), ratelimit.PerDay("maps-day", 100_000))
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: transport, Timeout: 5 * time.Second}, nil
}

// Requests wait for their turn, and fail if it does not come in time.
func Example() {
	store, api := newStore(), newAPI(http.StatusOK)
	defer store.Close()
	defer api.Close()
	client, err := newClient(store)
	if err != nil {
		log.Fatal(err)
	}
	defer client.CloseIdleConnections()

	res, err := client.Get(api.URL)
	var limited *upstream.LimitError
	if errors.As(err, &limited) {
		fmt.Println("limited by", limited.Limit, "until", limited.RetryAt)
		return
	}
	if err != nil {
		log.Fatal(err)
	}
	defer res.Body.Close()
	fmt.Println(res.Status)
	// Output: 200 OK
}

// cost makes an export cost 20 units, and the status page none. Each account has its own quota.
func cost(r *http.Request) (account string, units int64, err error) {
	account, _, ok := r.BasicAuth()
	switch {
	case !ok:
		return "", 0, errors.New("the request has no account")
	case r.URL.Path == "/status":
		return account, 0, nil // not limited
	case r.Method == http.MethodPost && r.URL.Path == "/export":
		return account, 20, nil
	}
	return account, 1, nil
}

// Routes cost different units, and each account has a quota of its own. With NoWait a request that
// cannot be sent now fails.
func ExampleOptions_cost() {
	store, api := newStore(), newAPI(http.StatusOK)
	defer store.Close()
	defer api.Close()
	transport, err := upstream.New(store, &upstream.Options{Cost: cost, NoWait: true},
		ratelimit.PerHour("units", 30))
	if err != nil {
		log.Fatal(err)
	}
	client := &http.Client{Transport: transport}
	defer client.CloseIdleConnections()
	for _, route := range []struct{ method, path string }{
		{"POST", "/export"}, {"POST", "/export"}, {"GET", "/tiles"}, {"GET", "/status"},
	} {
		r, err := http.NewRequest(route.method, api.URL+route.path, nil)
		if err != nil {
			log.Fatal(err)
		}
		r.SetBasicAuth("acme", "password")
		res, err := client.Do(r)
		var limited *upstream.LimitError
		if errors.As(err, &limited) {
			fmt.Println(route.method, route.path, "is limited by", limited.Limit)
			continue
		}
		if err != nil {
			log.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		fmt.Println(route.method, route.path, res.StatusCode)
	}
	// Output:
	// POST /export 200
	// POST /export is limited by units
	// GET /tiles 200
	// GET /status 200
}

// newSearchClient returns a client for which searches have a narrower limit inside that of all
// requests.
func newSearchClient(store ratelimit.Store) (*http.Client, error) {
	opts := &upstream.Options{Cost: cost}
	search, err := upstream.NewLimiter(store, opts, ratelimit.PerMinute("search", 30))
	if err != nil {
		return nil, err
	}
	opts.Claims = func(r *http.Request) ([]ratelimit.Claim, error) {
		if r.URL.Path != "/search" {
			return nil, nil
		}
		account, _, _ := r.BasicAuth()
		return []ratelimit.Claim{{Limiter: search, Key: account, N: 1}}, nil
	}
	transport, err := upstream.New(store, opts, ratelimit.PerHour("units", 5000))
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: transport, Timeout: 5 * time.Second}, nil
}

// A search takes a unit of its own limit and one of the account's.
func ExampleOptions_claims() {
	store, api := newStore(), newAPI(http.StatusOK)
	defer store.Close()
	defer api.Close()
	client, err := newSearchClient(store)
	if err != nil {
		log.Fatal(err)
	}
	defer client.CloseIdleConnections()
	r, err := http.NewRequest(http.MethodGet, api.URL+"/search", nil)
	if err != nil {
		log.Fatal(err)
	}
	r.SetBasicAuth("acme", "password")
	for range 31 {
		res, err := client.Do(r)
		var limited *upstream.LimitError
		if errors.As(err, &limited) {
			fmt.Println("limited by", limited.Limit)
			continue
		}
		if err != nil {
			log.Fatal(err)
		}
		_ = res.Body.Close()
	}
	// Output: limited by search
}

// A cool-down that the answer to one process begins holds for all processes.
func Example_coolDown() {
	store, api := newStore(), newAPI(http.StatusTooManyRequests, "Retry-After", "30")
	defer store.Close()
	defer api.Close()
	for process := range 2 {
		client, err := newClient(store)
		if err != nil {
			log.Fatal(err)
		}
		defer client.CloseIdleConnections()
		res, err := client.Get(api.URL)
		var limited *upstream.LimitError
		if errors.As(err, &limited) {
			wait := time.Until(limited.RetryAt).Round(time.Second)
			fmt.Println("process", process, "has to wait for", wait, limited.CoolDown)
			continue
		}
		if err != nil {
			log.Fatal(err)
		}
		_ = res.Body.Close()
		fmt.Println("process", process, "got", res.StatusCode)
	}
	// Output:
	// process 0 got 429
	// process 1 has to wait for 30s true
}
