package ratelimit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/driver"
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
	res, err := limiter.Allow(context.Background(), "user:42")
	fmt.Println(res.Allowed, res.Remaining, res.RetryAfter, err)
	// Output: true 59 0s <nil>
}

// testClock is a clock that the examples set.
type testClock struct{ micros int64 }

func (c *testClock) Now() int64              { return c.micros }
func (c *testClock) Advance(d time.Duration) { c.micros += d.Microseconds() }

func newExampleStore(clock *testClock) *memorystore.Store {
	clock.micros = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC).UnixMicro()
	store, err := memorystore.New(&memorystore.Options{Now: clock.Now})
	if err != nil {
		log.Fatal(err)
	}
	return store
}

func ExampleLimiter_Allow() {
	var clock testClock
	store := newExampleStore(&clock)
	defer store.Close()
	limiter, err := ratelimit.New(store,
		algorithm.SlidingLog(ratelimit.Limit{Name: "calls", Max: 2, Window: 10 * time.Second}))
	if err != nil {
		log.Fatal(err)
	}

	allow := func() {
		res, err := limiter.Allow(context.Background(), "user:42")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("allowed %v, remaining %d, retry after %v\n",
			res.Allowed, res.Remaining, res.RetryAfter)
	}
	allow()
	clock.Advance(7 * time.Second)
	allow()
	allow()
	clock.Advance(3*time.Second - time.Microsecond)
	allow()
	clock.Advance(time.Microsecond)
	allow()
	// Output:
	// allowed true, remaining 1, retry after 0s
	// allowed true, remaining 0, retry after 0s
	// allowed false, remaining 0, retry after 3s
	// allowed false, remaining 0, retry after 1µs
	// allowed true, remaining 0, retry after 0s
}

func ExampleLimiter_AllowN() {
	var clock testClock
	store := newExampleStore(&clock)
	defer store.Close()
	limiter, err := ratelimit.New(store,
		algorithm.SlidingLog(ratelimit.PerMinute("tokens", 10_000)))
	if err != nil {
		log.Fatal(err)
	}
	for _, n := range []int64{6_000, 6_000, 20_000} {
		res, err := limiter.AllowN(context.Background(), "tenant:7", n)
		switch {
		case errors.Is(err, ratelimit.ErrExceedsLimit):
			fmt.Println(n, "can never be admitted")
		case err != nil:
			log.Fatal(err)
		default:
			fmt.Printf("%d allowed: %v, remaining %d\n", n, res.Allowed, res.Remaining)
		}
	}
	// Output:
	// 6000 allowed: true, remaining 4000
	// 6000 allowed: false, remaining 4000
	// 20000 can never be admitted
}

// Ten a second and 1,000 a day, decided together: a demand that one limit refuses is charged to
// neither. AllowAll returns the result of each limit.
func ExampleAllowAll() {
	var clock testClock
	store := newExampleStore(&clock)
	defer store.Close()
	limiter, err := ratelimit.New(store,
		algorithm.SlidingLog(ratelimit.PerSecond("burst", 10)),
		algorithm.SlidingLog(ratelimit.PerDay("day", 1000)),
	)
	if err != nil {
		log.Fatal(err)
	}

	for _, n := range []int64{10, 1} {
		results, err := ratelimit.AllowAll(context.Background(),
			ratelimit.Claim{Limiter: limiter, Key: "user:42", N: n})
		if err != nil {
			log.Fatal(err)
		}
		for _, res := range results {
			fmt.Printf("%d of %v: allowed %v, remaining %d\n",
				n, res.Limit, res.Allowed, res.Remaining)
		}
		fmt.Println("the limit that binds:", results[ratelimit.Binding(results)].Limit)
	}
	// Output:
	// 10 of burst=10/1s: allowed true, remaining 0
	// 10 of day=1000/24h0m0s: allowed true, remaining 990
	// the limit that binds: burst=10/1s
	// 1 of burst=10/1s: allowed false, remaining 0
	// 1 of day=1000/24h0m0s: allowed true, remaining 990
	// the limit that binds: burst=10/1s
}

func ExampleLimiter_Peek() {
	var clock testClock
	store := newExampleStore(&clock)
	defer store.Close()
	limiter, err := ratelimit.New(store, algorithm.SlidingLog(ratelimit.PerMinute("minute", 5)))
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		res, err := limiter.Peek(context.Background(), "user:42")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(res.Allowed, res.Remaining)
	}
	// Output:
	// true 5
	// true 5
	// true 5
}

// Units that are already spent are recorded even if they do not fit. Later calls are refused until
// enough units have left the window.
func ExampleLimiter_Force() {
	var clock testClock
	store := newExampleStore(&clock)
	defer store.Close()
	limiter, err := ratelimit.New(store, algorithm.SlidingLog(ratelimit.PerMinute("minute", 10)))
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	res, err := limiter.Force(ctx, "tenant:7", 25)
	fmt.Println(res.Allowed, res.Remaining, err)
	res, err = limiter.Allow(ctx, "tenant:7")
	fmt.Println(res.Allowed, res.RetryAfter, err)
	// Output:
	// true 0 <nil>
	// false 1m0s <nil>
}

// With a limit of two calls in 20 ms, the third waits until the first has left the window. A wait
// that would not end before the deadline is given up at once.
func ExampleLimiter_Wait() {
	store, err := memorystore.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	limiter, err := ratelimit.New(store,
		algorithm.SlidingLog(ratelimit.Limit{Name: "calls", Max: 2, Window: 20 * time.Millisecond}))
	if err != nil {
		log.Fatal(err)
	}

	start := time.Now()
	for range 3 {
		if _, err := limiter.Wait(context.Background(), "partner-api"); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println("waited for the window:", time.Since(start) > 19*time.Millisecond)

	day, err := ratelimit.New(store, algorithm.SlidingLog(ratelimit.PerDay("day", 1)))
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	for range 2 {
		_, err = day.Wait(ctx, "partner-api")
		fmt.Println("gave up:", errors.Is(err, context.DeadlineExceeded))
	}
	// Output:
	// waited for the window: true
	// gave up: false
	// gave up: true
}

func ExampleLimiter_Reset() {
	var clock testClock
	store := newExampleStore(&clock)
	defer store.Close()
	limiter, err := ratelimit.New(store, algorithm.SlidingLog(ratelimit.PerHour("hour", 1)))
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	for range 2 {
		res, err := limiter.Allow(ctx, "login:alice")
		fmt.Println(res.Allowed, err)
	}
	fmt.Println(limiter.Reset(ctx, "login:alice"))
	res, err := limiter.Allow(ctx, "login:alice")
	fmt.Println(res.Allowed, err)
	// Output:
	// true <nil>
	// false <nil>
	// <nil>
	// true <nil>
}

func ExampleParseLimit() {
	for _, s := range []string{"login=10/s", "search=100/1m30s", "burst=20/500ms",
		"export=5000/7d", "api=0/s"} {
		limit, err := ratelimit.ParseLimit(s)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(limit.Name, limit.Max, limit.Window)
	}
	// Output:
	// login 10 1s
	// search 100 1m30s
	// burst 20 500ms
	// export 5000 168h0m0s
	// ratelimit: invalid limit: Max 0 is not between 1 and 1099511627776
}

// Limits can be read from JSON, YAML and flags.
func ExampleLimit_UnmarshalText() {
	var config struct {
		Plans map[string][]ratelimit.Limit
	}
	err := json.Unmarshal([]byte(`{
		"plans": {
			"free": ["burst=2/s", "day=100/d"],
			"pro":  ["burst=20/s", "day=10000/d"]
		}
	}`), &config)
	fmt.Println(config.Plans["free"], config.Plans["pro"][1].Max, err)
	// Output: [burst=2/1s day=100/24h0m0s] 10000 <nil>
}

// awayStore is a store whose server does not answer.
type awayStore struct{}

func (awayStore) Take(context.Context, driver.Demand) (ratelimit.Result, error) {
	return ratelimit.Result{}, ratelimit.ErrUnavailable
}

func (awayStore) TakeAll(context.Context, []driver.Demand, []ratelimit.Result) error {
	return ratelimit.ErrUnavailable
}

// Each use of a limiter can have its own policy.
func ExampleLimiter_WithPolicy() {
	closed, err := ratelimit.New(awayStore{}, algorithm.SlidingLog(ratelimit.PerHour("hour", 10)))
	if err != nil {
		log.Fatal(err)
	}
	open := closed.WithPolicy(ratelimit.FailOpen)

	ctx := context.Background()
	_, err = closed.Allow(ctx, "login:ann") // better no login than a guessed password
	fmt.Println(errors.Is(err, ratelimit.ErrUnavailable))
	res, err := open.Allow(ctx, "search:ann") // better too many searches than none
	fmt.Println(res.Allowed, res.Source, err)
	// Output:
	// true
	// true open <nil>
}

// Count decisions with one observer. Do not use the key as a label of the counters: it is user
// data.
func ExampleLimiter_WithObserver() {
	var clock testClock
	store := newExampleStore(&clock)
	defer store.Close()
	limiter, err := ratelimit.New(store, algorithm.SlidingLog(ratelimit.PerMinute("login", 2)))
	if err != nil {
		log.Fatal(err)
	}
	counts := make(map[string]int) // with concurrent callers, guard it with a lock
	limiter = limiter.WithObserver(func(_ context.Context, o ratelimit.Observation) {
		switch {
		case o.Err != nil:
			counts["error"]++
		case o.Admitted:
			counts["admitted"]++
		default:
			counts["refused"]++
		}
	})
	for _, key := range []string{"user:42", "user:42", "user:42", "user:7", ""} {
		_, _ = limiter.Allow(context.Background(), key)
	}
	fmt.Println(counts)
	// Output: map[admitted:3 error:1 refused:1]
}
