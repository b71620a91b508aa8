package ratelimit_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/driver"
)

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
