package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/driver"
)

func TestWaitSleepsExactlyRetryAfter(t *testing.T) {
	for _, tt := range []struct {
		name   string
		limits []ratelimit.Limit
		n      int64
		want   time.Duration
	}{
		{"one unit", []ratelimit.Limit{{Name: "w", Max: 3, Window: 10 * time.Second}}, 1,
			7 * time.Second},
		{"two units", []ratelimit.Limit{{Name: "w", Max: 3, Window: 10 * time.Second}}, 2,
			10 * time.Second},
		{"free", []ratelimit.Limit{{Name: "w", Max: 9, Window: 10 * time.Second}}, 1, 0},
		{"n of 0", []ratelimit.Limit{{Name: "w", Max: 3, Window: 10 * time.Second}}, 0,
			7 * time.Second},
		{"the slower of two limits",
			[]ratelimit.Limit{{Name: "a", Max: 3, Window: 10 * time.Second},
				{Name: "b", Max: 3, Window: time.Minute}}, 1, 57 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &mapStore{}
				limiter := newLimiter(t, store, tt.limits...)
				mustAllow(t, limiter, 1)
				time.Sleep(3 * time.Second)
				mustAllow(t, limiter, 2)
				store.made()

				start := time.Now()
				res, err := limiter.WaitN(t.Context(), "k", tt.n)
				if err != nil || !res.Allowed {
					t.Fatalf("WaitN: %+v, %v", res, err)
				}
				if got := time.Since(start); got != tt.want {
					t.Errorf("slept %v, want %v", got, tt.want)
				}
				wantCount := 2 // a refusal and an admission, nothing between
				if tt.want == 0 {
					wantCount = 1
				}
				if calls := store.made(); len(calls) != wantCount {
					t.Errorf("calls of the store: %q, want %d", calls, wantCount)
				}
			})
		})
	}
}

func TestWaitIsWaitNOfOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := newLimiter(t, &mapStore{}, ratelimit.PerSecond("second", 2))
		start := time.Now()
		for i, want := range []int64{1, 0, 1} {
			res, err := limiter.Wait(t.Context(), "k")
			if err != nil || !res.Allowed || res.Remaining != want {
				t.Errorf("Wait %d: %+v, %v; want %d remaining", i, res, err, want)
			}
		}
		if got := time.Since(start); got != time.Second {
			t.Errorf("three of two a second took %v, want 1s", got)
		}
	})
}

func TestWaitAsksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := newLimiter(t, &mapStore{}, ratelimit.PerSecond("second", 1))
		mustAllow(t, limiter, 1)
		start := time.Now()
		var mu sync.Mutex
		var took []time.Duration
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if _, err := limiter.Wait(t.Context(), "k"); err != nil {
					t.Errorf("Wait: %v", err)
				}
				mu.Lock()
				defer mu.Unlock()
				took = append(took, time.Since(start))
			})
		}
		wg.Wait()
		slices.Sort(took)
		if want := []time.Duration{time.Second, 2 * time.Second,
			3 * time.Second}; !slices.Equal(took, want) {
			t.Errorf("three waiters were admitted after %v, want %v", took, want)
		}
	})
}

func TestWaitDeadline(t *testing.T) {
	for _, tt := range []struct {
		name     string
		deadline time.Duration
		admitted bool
	}{
		{"nearer", 10*time.Second - time.Nanosecond, false},
		{"the same", 10 * time.Second, false},
		{"later", 10*time.Second + time.Nanosecond, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limiter := newLimiter(t, &mapStore{},
					ratelimit.Limit{Name: "w", Max: 1, Window: 10 * time.Second})
				mustAllow(t, limiter, 1)
				ctx, cancel := context.WithTimeout(t.Context(), tt.deadline)
				defer cancel()
				start := time.Now()
				res, err := limiter.Wait(ctx, "k")
				if tt.admitted {
					if err != nil || !res.Allowed || time.Since(start) != 10*time.Second {
						t.Errorf("after %v: %+v, %v", time.Since(start), res, err)
					}
					return
				}
				wantErr(t, err, context.DeadlineExceeded)
				if errors.Is(err, ratelimit.ErrUnavailable) {
					t.Errorf("%v: the demand was decided", err)
				}
				if res.Allowed || res.RetryAfter != 10*time.Second {
					t.Errorf("result is %+v, want the refusal", res)
				}
				if got := time.Since(start); got != 0 {
					t.Errorf("gave up after %v, want at once", got)
				}
			})
		})
	}
}

func TestWaitContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := newLimiter(t, &mapStore{},
			ratelimit.Limit{Name: "w", Max: 1, Window: 10 * time.Second})
		mustAllow(t, limiter, 1)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(3*time.Second, cancel)
		start := time.Now()
		res, err := limiter.Wait(ctx, "k")
		wantErr(t, err, context.Canceled)
		if errors.Is(err, ratelimit.ErrUnavailable) {
			t.Errorf("%v: the demand was decided", err)
		}
		if res.Allowed || res.RetryAfter != 10*time.Second {
			t.Errorf("result is %+v, want the refusal", res)
		}
		if got := time.Since(start); got != 3*time.Second {
			t.Errorf("returned after %v, want 3s", got)
		}
		time.Sleep(7 * time.Second)
		if res, err := limiter.Peek(t.Context(), "k"); err != nil || res.Remaining != 1 {
			t.Errorf("a wait that was given up took something: %+v, %v", res, err)
		}
	})
}

func TestWaitErrorAfterASleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("the store's own")
		store := &mapStore{}
		limiter := newLimiter(t, store, ratelimit.PerSecond("second", 1))
		mustAllow(t, limiter, 1)
		time.AfterFunc(time.Second/2, func() {
			store.mu.Lock()
			defer store.mu.Unlock()
			store.err = cause
		})
		start := time.Now()
		if _, err := limiter.Wait(t.Context(), "k"); err != cause {
			t.Errorf("error is %v, want the store's own", err)
		}
		if got := time.Since(start); got != time.Second {
			t.Errorf("returned after %v, want 1s", got)
		}
	})
}

func mustAllow(t *testing.T, limiter *ratelimit.Limiter, n int64) {
	t.Helper()
	if res, err := limiter.AllowN(t.Context(), "k", n); err != nil || !res.Allowed {
		t.Fatalf("AllowN(%d): %+v, %v", n, res, err)
	}
}

// TestWaitAll: claims wait until all limits admit them together, take all or nothing, and give
// up at once if that is later than the deadline.
func TestWaitAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(mapStore)
		var seen []ratelimit.Observation
		observe := func(_ context.Context, o ratelimit.Observation) { seen = append(seen, o) }
		search := newLimiter(t, store, ratelimit.PerMinute("search", 1))
		quota := newLimiter(t, store, ratelimit.PerSecond("quota", 2)).WithObserver(observe)
		claims := []ratelimit.Claim{{Limiter: search, Key: "s", N: 1},
			{Limiter: quota, Key: "q", N: 2}}
		wait := func(timeout time.Duration) ([]ratelimit.Result, error) {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			return ratelimit.WaitAll(ctx, claims...)
		}
		began := time.Now()
		mustAllow(t, search, 0)
		for i := range 2 {
			if res, err := wait(time.Hour); err != nil || !res[0].Allowed || !res[1].Allowed {
				t.Fatalf("wait %d: %+v, %v", i, res, err)
			}
		}
		if took := time.Since(began); took != time.Minute {
			t.Errorf("two waits took %v, want a minute", took)
		}
		res, err := wait(time.Minute)
		if !errors.Is(err, context.DeadlineExceeded) || len(res) != 2 || res[0].Allowed ||
			time.Since(began) != time.Minute {
			t.Errorf("%+v, %v after %v", res, err, time.Since(began))
		}
		time.Sleep(time.Second)
		if res, err := quota.AllowN(t.Context(), "q", 2); err != nil || !res.Allowed {
			t.Errorf("a wait that gave up took units: %+v, %v", res, err)
		}
		if len(seen) != 4 || seen[1].Waited != time.Minute || seen[2].Err == nil ||
			seen[0].Waited != 0 {
			t.Errorf("observed %+v", seen)
		}
	})
}

// TestWaitAllResults: the results are those of all limits, also of a refusal. There are none if the
// store was not called.
func TestWaitAllResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := newLimiter(t, &mapStore{},
			ratelimit.PerSecond("second", 2), ratelimit.PerMinute("minute", 3))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		wait := func(n int64, wantErr error, want ...[2]int64) {
			t.Helper()
			results, err := ratelimit.WaitAll(ctx, claim(limiter, n))
			if !errors.Is(err, wantErr) {
				t.Errorf("%d units: %v, want %v", n, err, wantErr)
			}
			var got [][2]int64
			for _, res := range results {
				got = append(got, [2]int64{res.Remaining, int64(res.RetryAfter / time.Second)})
			}
			if !slices.Equal(got, want) {
				t.Errorf("%d units: remaining and seconds to wait are %v, want %v", n, got, want)
			}
		}
		wait(2, nil, [2]int64{0, 0}, [2]int64{1, 0})
		wait(1, nil, [2]int64{1, 0}, [2]int64{0, 0})
		wait(1, context.DeadlineExceeded, [2]int64{1, 0}, [2]int64{0, 59})
		wait(3, ratelimit.ErrExceedsLimit)
		cancel()
		wait(1, context.Canceled)
	})
}

// TestWaitAllInFlight: claims on calls in flight are admitted soon after a call has ended, at once
// if they come first, and do not give up because RetryAfter is beyond the deadline. They give up at
// once if another limit cannot admit them in time.
func TestWaitAllInFlight(t *testing.T) {
	for _, tt := range []inFlightWait{
		{"released", 0, 3 * time.Second, 9 * time.Second, true, 3 * time.Second},
		{"not released", 0, 0, 9 * time.Second, false, 9 * time.Second},
		{"released before the tokens are free", 3, 3 * time.Second, 11 * time.Second, true,
			10 * time.Second},
		{"released after the tokens are free", 3, 12 * time.Second, 20 * time.Second, true,
			12 * time.Second},
		{"the tokens are free too late", 3, 3 * time.Second, 10 * time.Second, false, 0},
	} {
		for _, callsFirst := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, calls first %t", tt.name, callsFirst), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { tt.test(t, callsFirst) })
			})
		}
	}
}

// inFlightWait is a wait for a call in flight, of which there is one, and for a token.
type inFlightWait struct {
	name     string
	spent    int64         // of 3 tokens, for 10 s
	release  time.Duration // of the call, or 0
	deadline time.Duration
	admitted bool
	after    time.Duration
}

func (tt inFlightWait) test(t *testing.T, callsFirst bool) {
	store := new(mapStore)
	calls, tokens := newCalls(t, store, 1), newLimiter(t, store, tenSeconds(3))
	claims := []ratelimit.Claim{claim(calls, 1), claim(tokens, 1)}
	if !callsFirst {
		slices.Reverse(claims)
	}
	held := mustAcquire(t, calls)
	mustAllow(t, tokens, tt.spent)
	if tt.release > 0 {
		time.AfterFunc(tt.release, func() { _ = held.Cancel(context.Background()) })
	}
	ctx, cancel := context.WithTimeout(t.Context(), tt.deadline)
	defer cancel()
	began := time.Now()
	r, err := ratelimit.AcquireAll(ctx, claims...)
	late, most := time.Since(began)-tt.after, time.Duration(0)
	if tt.admitted && tt.after == tt.release && !callsFirst {
		most = 160 * time.Millisecond
	}
	if late < 0 || late > most {
		t.Errorf("ended %v after %v, want at most %v", late, tt.after, most)
	}
	var want error
	if !tt.admitted {
		want = context.DeadlineExceeded
	}
	if r == nil || r.Allowed() != tt.admitted || !errors.Is(err, want) {
		t.Fatalf("%+v, %v; want admitted %t", r, err, tt.admitted)
	}
	wantNoQueue(t, claims[0].Limiter)
}

// TestWaitAllUnavailable: the wait goes on through an outage if all limiters are FailWait, and is
// admitted if all are FailOpen.
func TestWaitAllUnavailable(t *testing.T) {
	for _, tt := range []struct {
		one, two ratelimit.Policy
		ok       bool
		after    time.Duration // at least
	}{
		{ratelimit.FailWait, ratelimit.FailWait, true, 5 * time.Second},
		{ratelimit.FailWait, ratelimit.FailClosed, false, 0},
		{ratelimit.FailOpen, ratelimit.FailOpen, true, 0},
		{ratelimit.FailOpen, ratelimit.FailClosed, false, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := new(mapStore)
			store.fail(ratelimit.ErrUnavailable)
			time.AfterFunc(5*time.Second, func() { store.fail(nil) })
			began := time.Now()
			_, err := ratelimit.WaitAll(t.Context(),
				ratelimit.Claim{Limiter: newLimiter(t, store, tenSeconds(3)).WithPolicy(tt.one),
					Key: "a", N: 1},
				ratelimit.Claim{Limiter: newLimiter(t, store, tenSeconds(3)).WithPolicy(tt.two),
					Key: "b", N: 1})
			if (err == nil) != tt.ok || time.Since(began) < tt.after ||
				err != nil && !errors.Is(err, ratelimit.ErrUnavailable) {
				t.Errorf("%v and %v: %v after %v", tt.one, tt.two, err, time.Since(began))
			}
		})
	}
}

// callerKey is the key of a caller's number in its context.
type callerKey struct{}

// askedStore counts the calls of callers with a number, and notes whom it admits.
type askedStore struct {
	ratelimit.Store

	mu       sync.Mutex
	calls    int
	admitted []int
}

func (s *askedStore) TakeAll(
	ctx context.Context, ds []driver.Demand, out []ratelimit.Result,
) error {
	err := s.Store.TakeAll(ctx, ds, out)
	caller, ok := ctx.Value(callerKey{}).(int)
	if !ok || ds[len(ds)-1].Op == driver.OpSettle {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	if err == nil && out[ratelimit.Binding(out)].Allowed {
		s.admitted = append(s.admitted, caller)
	}
	return err
}

// others returns the callers that are not admitted and have not left.
func (s *askedStore) others(callers int, left map[int]bool) (others []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range callers {
		if !left[i] && !slices.Contains(s.admitted, i) {
			others = append(others, i)
		}
	}
	return others
}

// gatewayLimits are limits of one key on one store.
type gatewayLimits struct{ requests, tokens, budget, calls *ratelimit.Limiter }

func newGatewayLimits(t *testing.T, store ratelimit.Store) gatewayLimits {
	limiter := func(a ratelimit.Algorithm) *ratelimit.Limiter {
		limiter, err := ratelimit.New(store, a)
		noErr(t, err)
		return limiter
	}
	log := algorithm.SlidingLog
	return gatewayLimits{
		requests: limiter(log(ratelimit.PerMinute("requests", 60))),
		tokens:   limiter(log(ratelimit.PerMinute("tokens", 500))),
		budget:   limiter(algorithm.Budget(log(ratelimit.PerMinute("budget", 5000)))),
		calls:    limiter(algorithm.InFlight("calls", 8)),
	}
}

// manyWait is a wait of many callers for the same claims.
type manyWait struct {
	name   string
	claims func(l gatewayLimits) []ratelimit.Claim
	calls  float64 // of the store for an admission, at most; 0 means any number
	holds  bool    // this process alone holds what is missing
}

// TestWaitMany: 200 callers that wait for several claims together are admitted in the order in
// which they began. Where units become free together, or this process alone holds what is missing,
// each takes at most 1.2 calls of the store; where it holds them, there is one more in 1.28 s, to
// see whether another process has reset the key. Those that leave, anywhere in the queue, take
// nothing and leave nothing.
func TestWaitMany(t *testing.T) {
	for _, tt := range []manyWait{
		{"requests and tokens", func(l gatewayLimits) []ratelimit.Claim {
			return []ratelimit.Claim{claim(l.requests, 1), claim(l.tokens, 10)}
		}, 1.2, false},
		{"calls and a budget", func(l gatewayLimits) []ratelimit.Claim {
			return []ratelimit.Claim{claim(l.calls, 1), claim(l.budget, 10)}
		}, 1.2, true},
		{"a budget and calls", func(l gatewayLimits) []ratelimit.Claim {
			return []ratelimit.Claim{claim(l.budget, 10), claim(l.calls, 1)}
		}, 1.2, true},
		{"a budget with room for one", func(l gatewayLimits) []ratelimit.Claim {
			return []ratelimit.Claim{claim(l.budget, 3000), claim(l.calls, 1)}
		}, 1.2, true},
		// The requests become free one by one, as they were taken.
		{"requests, a budget and calls", func(l gatewayLimits) []ratelimit.Claim {
			return []ratelimit.Claim{claim(l.requests, 1), claim(l.budget, 10), claim(l.calls, 1)}
		}, 2, false},
		// What is used and what is held fill the budget. Another process might end a hold.
		{"a budget that is used", func(l gatewayLimits) []ratelimit.Claim {
			return []ratelimit.Claim{claim(l.budget, 600), claim(l.calls, 1)}
		}, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var calls, admitted int
			var lasted time.Duration
			for seed := range uint64(3) {
				synctest.Test(t, func(t *testing.T) {
					began := time.Now()
					store := tt.test(t, seed)
					calls, admitted = calls+store.calls, admitted+len(store.admitted)
					lasted += time.Since(began)
				})
			}
			per := float64(calls) / float64(admitted)
			t.Logf("%.2f calls of the store for an admission", per)
			most := tt.calls
			if tt.holds {
				most += float64(lasted/(1280*time.Millisecond)) / float64(admitted)
			}
			if tt.calls > 0 && per > most {
				t.Errorf("want at most %.2f", most)
			}
		})
	}
}

func (tt manyWait) test(t *testing.T, seed uint64) *askedStore {
	const callers, leaving = 200, 40
	memory, err := memorystore.New(nil)
	noErr(t, err)
	defer memory.Close()
	store := &askedStore{Store: memory}
	limits := newGatewayLimits(t, store)
	claims := tt.claims(limits)
	rng := rand.New(rand.NewPCG(seed, 0))
	var wg sync.WaitGroup
	cancels := make([]context.CancelFunc, callers)
	errs := make([]error, callers)
	for i := range callers {
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), callerKey{}, i))
		defer cancel()
		cancels[i] = cancel
		work, used := time.Duration(1+rng.IntN(5000))*time.Millisecond, rng.Int64N(10)
		wg.Go(func() {
			if !slices.ContainsFunc(claims, func(c ratelimit.Claim) bool {
				return c.Limiter == limits.calls
			}) {
				_, errs[i] = ratelimit.WaitAll(ctx, claims...)
				return
			}
			var r *ratelimit.Reservation
			if r, errs[i] = ratelimit.AcquireAll(ctx, claims...); errs[i] == nil {
				time.Sleep(work)
				noErr(t, r.Commit(ctx, used))
			}
		})
		synctest.Wait()
	}
	left := make(map[int]bool)
	for i := range leaving {
		time.Sleep(time.Duration(rng.IntN(1000)) * time.Millisecond)
		synctest.Wait()
		waiting := store.others(callers, left)
		leaves := waiting[rng.IntN(len(waiting))]
		if i%3 == 0 {
			leaves = waiting[0]
		}
		left[leaves] = true
		cancels[leaves]()
	}
	wg.Wait()

	var want []int
	for i, err := range errs {
		if !left[i] {
			want = append(want, i)
		}
		if left[i] != errors.Is(err, context.Canceled) || !left[i] && err != nil {
			t.Errorf("caller %d, which leaves %t: %v", i, left[i], err)
		}
	}
	if !slices.Equal(store.admitted, want) { // in order, and nobody who has left
		t.Errorf("admitted are %v, want %v", store.admitted, want)
	}
	for _, l := range []*ratelimit.Limiter{limits.requests, limits.tokens, limits.budget,
		limits.calls} {
		wantNoQueue(t, l)
		if held := ratelimit.HeldHere(l); len(held) > 0 {
			t.Errorf("counted as held under %v: %v", l.Limits(), held)
		}
	}
	if res, err := limits.calls.Peek(t.Context(), "k"); err != nil || res.Remaining != 8 {
		t.Errorf("calls are left: %+v, %v", res, err)
	}
	return store
}

// TestWaitQueues: callers wait in queues of several keys for one limit that the queues share. Calls
// in flight go to the queues in turn, with hardly more calls of the store than admissions. For
// units that are taken each queue asks for itself.
func TestWaitQueues(t *testing.T) {
	for _, queues := range []int{2, 20} {
		for _, held := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) { testWaitQueues(t, queues, held) })
		}
	}
}

func testWaitQueues(t *testing.T, queues int, held bool) {
	const callers, room = 40, 5 // for each queue, and in the limit that is not held
	memory, err := memorystore.New(nil)
	noErr(t, err)
	defer memory.Close()
	store := &askedStore{Store: memory}
	limits := newGatewayLimits(t, store)
	shared, mostCalls, mostAhead := claim(limits.calls, 1), 1.2, callers/2
	if !held {
		shared, mostCalls, mostAhead = claim(limits.tokens, limits.tokens.Max()/room),
			1+float64(queues)/room, callers
	}
	var wg sync.WaitGroup
	for i := range queues * callers {
		ctx := context.WithValue(t.Context(), callerKey{}, i)
		own := ratelimit.Claim{Limiter: limits.requests, Key: string(rune('a' + i%queues)), N: 1}
		wg.Go(func() {
			r, err := ratelimit.AcquireAll(ctx, own, shared)
			noErr(t, err)
			time.Sleep(time.Duration(500+rand.IntN(1000)) * time.Millisecond)
			noErr(t, r.Commit(ctx))
		})
		synctest.Wait()
	}
	wg.Wait()
	ahead := 0
	turns := make([]int, queues)
	for _, caller := range store.admitted {
		if queue := caller % queues; caller/queues == turns[queue] {
			turns[queue]++
			ahead = max(ahead, turns[queue]-slices.Min(turns))
		}
	}
	per := float64(store.calls) / float64(len(store.admitted))
	t.Logf("%d queues, held %t: %.2f calls of the store for an admission, and one queue at most "+
		"%d turns ahead of another", queues, held, per, ahead)
	if slices.Min(turns) < callers || per > mostCalls || ahead > mostAhead {
		t.Errorf("callers in order: %v; want %.2f calls and %d turns ahead at most", turns,
			mostCalls, mostAhead)
	}
}

// TestWaitLarge measures how long a large demand waits while others take each unit as soon as it is
// free: in one queue until those ahead of it are admitted and its units are free, which takes at
// most two windows here. In a queue of its own, as in another process, it may wait for ever.
func TestWaitLarge(t *testing.T) {
	const trials = 10
	limit := ratelimit.Limit{Name: "w", Max: 20, Window: 10 * time.Second}
	for _, a := range []ratelimit.Algorithm{
		algorithm.SlidingLog(limit), algorithm.GCRA(limit),
	} {
		for _, n := range []int64{2, limit.Max / 2} {
			for _, together := range []bool{true, false} {
				var waits []time.Duration
				var others, admitted int
				for range trials {
					synctest.Test(t, func(t *testing.T) {
						wait, before := largeWait(t, a, n, together)
						waits, others = append(waits, wait), others+before
						if wait < largePatience {
							admitted++
						}
					})
				}
				slices.Sort(waits)
				t.Logf("%s, %d of %d units, one queue %t: %d of %d are admitted, after %v at the "+
					"median, and %d others meanwhile", a.Name(), n, limit.Max, together, admitted,
					trials, waits[trials/2].Round(time.Second/10), others/trials)
				if last := waits[trials-1]; together && last > 2*limit.Window {
					t.Errorf("the longest wait is %v", last)
				}
			}
		}
	}
}

// largePatience is how long a large demand waits at most.
const largePatience = 200 * time.Second

// largeWait returns how long a demand of n units waits, and how many others are admitted meanwhile.
func largeWait(
	t *testing.T, a ratelimit.Algorithm, n int64, together bool,
) (wait time.Duration, others int) {
	store, err := memorystore.New(nil)
	noErr(t, err)
	defer store.Close()
	small, err := ratelimit.New(store, a)
	noErr(t, err)
	large := small
	if !together {
		large, err = ratelimit.New(store, a)
		noErr(t, err)
	}
	limit := a.Limit()
	for range 2 * limit.Max { // so that units become free at random times
		_, err := small.Allow(t.Context(), "k")
		noErr(t, err)
		time.Sleep(rand.N(2 * limit.Window / time.Duration(limit.Max)))
	}
	ctx, cancel := context.WithTimeout(t.Context(), largePatience)
	defer cancel()
	var admitted atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				if _, err := small.Wait(ctx, "k"); err == nil {
					admitted.Add(1)
				}
			}
		})
	}
	synctest.Wait()
	before, began := admitted.Load(), time.Now()
	_, err = large.WaitN(ctx, "k", n)
	wait, others = time.Since(began), int(admitted.Load()-before)
	if err != nil {
		wait = largePatience
	}
	cancel()
	wg.Wait()
	return wait, others
}
