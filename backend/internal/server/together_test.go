package server

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
)

// road decides groups on a memory store, and can be closed for a while.
type road struct {
	t      testing.TB
	store  *memorystore.Store
	mu     sync.Mutex
	closed chan struct{} // nil if open
	near   bool          // closed before the first byte is sent, not after the last
	calls  [][]string    // what each call carried
}

func newRoad(t testing.TB) (*road, *Together) {
	store, err := memorystore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	r := &road{t: t, store: store}
	return r, &Together{Decide: r.decide, Shared: &Shared{Timeout: 100 * time.Millisecond}}
}

func (r *road) close() (open func()) {
	c := make(chan struct{})
	r.mu.Lock()
	r.closed = c
	r.mu.Unlock()
	return func() {
		r.mu.Lock()
		r.closed = nil
		r.mu.Unlock()
		close(c)
	}
}

func (r *road) decide(_ context.Context, gate *Gate, groups []Group) error {
	var cargo []string
	for _, g := range groups {
		cargo = append(cargo, fmt.Sprintf("%d× %v of %d on %s", g.Times, g.Demands[0].Op, g.Demands[0].N, g.Demands[0].Key))
	}
	r.mu.Lock()
	closed := r.closed
	r.calls = append(r.calls, cargo)
	r.mu.Unlock()
	if closed != nil {
		if !r.near {
			gate.Open()
		}
		<-closed
	}
	if !gate.Open() {
		return nil
	}
	for i := range groups {
		g := &groups[i]
		if len(g.Demands) > 1 {
			g.Err = r.store.TakeAll(context.Background(), g.Demands, g.Results)
			continue
		}
		for j := range g.Times {
			g.Results[j], g.Err = r.store.Take(context.Background(), g.Demands[0])
		}
	}
	return nil
}

func (r *road) cargo() [][]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls
}

func demandOn(key string, op ratelimit.Op, n int64) ratelimit.Demand {
	return ratelimit.Demand{Key: key, Algorithm: algorithm.SlidingLog(ratelimit.PerHour(1000)), Op: op, N: n}
}

// TestTogether: while calls are under way demands wait, and then go in the order in which they came, equal Takes as one.
func TestTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, together := newRoad(t)
		ctx := t.Context()
		if res, err := together.Take(ctx, "a", demandOn("a", ratelimit.Take, 1)); err != nil || res.Remaining != 999 {
			t.Fatalf("%+v, %v", res, err)
		}
		open := r.close()
		var wg sync.WaitGroup
		results := make([]ratelimit.Result, 12)
		ask := func(i int, key string, op ratelimit.Op, n int64) {
			wg.Go(func() {
				var err error
				if results[i], err = together.Take(ctx, key, demandOn(key, op, n)); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		ask(0, "b", ratelimit.Take, 1) // two calls go at once
		ask(1, "c", ratelimit.Take, 1)
		ask(2, "a", ratelimit.Take, 2) // these wait
		ask(3, "a", ratelimit.Take, 2)
		ask(4, "b", ratelimit.Take, 1)
		ask(5, "a", ratelimit.Take, 2)
		ask(6, "a", ratelimit.Look, 1)
		ask(7, "a", ratelimit.Take, 2)
		ask(8, "a", ratelimit.Look, 1)
		ask(9, "a", ratelimit.Look, 1)
		wg.Go(func() {
			out := make([]ratelimit.Result, 2)
			if err := together.TakeAll(ctx, []string{"a", "b"}, []ratelimit.Demand{demandOn("a", ratelimit.Take, 2), demandOn("b", ratelimit.Take, 1)}, out); err != nil {
				t.Error(err)
			}
			results[10] = out[0]
		})
		synctest.Wait()
		ask(11, "a", ratelimit.Take, 2)
		open()
		wg.Wait()
		want := "[[1× take of 1 on a] [1× take of 1 on b] [1× take of 1 on c] [3× take of 2 on a 1× take of 1 on b 1× look of 1 on a 1× take of 2 on a " +
			"1× look of 1 on a 1× look of 1 on a 1× take of 2 on a 1× take of 2 on a]]"
		if got := fmt.Sprint(r.cargo()); got != want {
			t.Errorf("carried %s, want %s", got, want)
		}
		for i, want := range map[int]int64{2: 997, 3: 995, 5: 993, 6: 993, 7: 991, 8: 991, 10: 989, 11: 987} {
			if results[i].Remaining != want {
				t.Errorf("answer %d: remaining %d, want %d", i, results[i].Remaining, want)
			}
		}
	})
}

// TestTogetherLeaving: who leaves before the call does is not taken along; who leaves later does not know, and takes nobody with him.
func TestTogetherLeaving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, together := newRoad(t)
		open := r.close()
		var wg sync.WaitGroup
		ask := func(ctx context.Context, key string, check func(ratelimit.Result, error)) {
			wg.Go(func() { check(together.Take(ctx, key, demandOn(key, ratelimit.Take, 1))) })
			synctest.Wait()
		}
		gone, leave := context.WithCancel(t.Context())
		ask(gone, "a", func(_ ratelimit.Result, err error) {
			if !errors.Is(err, ratelimit.ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) {
				t.Errorf("left on the way: %v", err)
			}
		})
		ask(t.Context(), "b", func(res ratelimit.Result, err error) {
			if err != nil || res.Remaining != 999 {
				t.Errorf("stayed on the way: %+v, %v", res, err)
			}
		})
		ask(gone, "c", func(_ ratelimit.Result, err error) {
			if !errors.Is(err, ratelimit.ErrUnavailable) || errors.Is(err, ratelimit.ErrOutcomeUnknown) {
				t.Errorf("left while waiting: %v", err)
			}
		})
		ask(t.Context(), "c", func(res ratelimit.Result, err error) {
			if err != nil || res.Remaining != 999 {
				t.Errorf("stayed while waiting: %+v, %v", res, err)
			}
		})
		leave()
		synctest.Wait()
		open()
		wg.Wait()
	})
}

// TestTogetherHanging: a call that hangs keeps others for its time and no longer, and answers at most so late.
func TestTogetherHanging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, together := newRoad(t)
		open := r.close()
		var wg sync.WaitGroup
		ask := func(key string) {
			start := time.Now()
			wg.Go(func() {
				_, err := together.Take(t.Context(), key, demandOn(key, ratelimit.Take, 1))
				if !errors.Is(err, ratelimit.ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s: %v", key, err)
				}
				if took := time.Since(start); took <= 90*time.Millisecond || took > 100*time.Millisecond {
					t.Errorf("%s: answered after %v", key, took)
				}
			})
			synctest.Wait()
		}
		ask("first")
		ask("second")
		time.Sleep(50 * time.Millisecond)
		ask("third") // waits until the two before count no more
		wg.Wait()
		if got := len(r.cargo()); got != 3 {
			t.Errorf("%d calls, want 3 that hang", got)
		}
		done := make(chan error)
		go func() {
			_, err := together.Take(t.Context(), "last", demandOn("last", ratelimit.Take, 1))
			done <- err
		}()
		synctest.Wait()
		if got := len(r.cargo()); got != 4 {
			t.Errorf("%d calls, want one more", got)
		}
		open()
		if err := <-done; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if n := together.Shared.deserted.Load(); together.flights != 0 || n != 0 {
			t.Errorf("%d calls under way, %d deserted, want none", together.flights, n)
		}
	})
}

// TestTogetherMany: of more demands than fit into a call, those that wait for the second are told in time that they were not sent.
func TestTogetherMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, together := newRoad(t)
		open := r.close()
		var wg sync.WaitGroup
		var unsent, unknown atomic.Int64
		ask := func(key string) {
			wg.Go(func() {
				start := time.Now()
				_, err := together.Take(t.Context(), key, demandOn(key, ratelimit.Take, 1))
				switch {
				case errors.Is(err, ratelimit.ErrOutcomeUnknown):
					unknown.Add(1)
				case errors.Is(err, ratelimit.ErrUnavailable):
					unsent.Add(1)
				default:
					t.Errorf("got %v", err)
				}
				if took := time.Since(start); took > 100*time.Millisecond {
					t.Errorf("answered after %v", took)
				}
			})
		}
		ask("first")
		synctest.Wait()
		ask("second")
		synctest.Wait()
		time.Sleep(50 * time.Millisecond)
		for i := range 2 * maxGroups {
			ask(fmt.Sprint(i))
		}
		wg.Wait()
		if unknown.Load() < 2+maxGroups || unsent.Load() == 0 {
			t.Errorf("%d outcomes unknown and %d not sent", unknown.Load(), unsent.Load())
		}
		open()
	})
}

// TestTogetherFull: beyond the bound demands are refused at once.
func TestTogetherFull(t *testing.T) {
	_, together := newRoad(t)
	together.Shared.waiting.Store(maxQueue) // of another lane's, it may be
	if _, err := together.Take(t.Context(), "a", demandOn("a", ratelimit.Take, 1)); !errors.Is(err, ratelimit.ErrUnavailable) {
		t.Errorf("full queue: %v", err)
	}
	if n := together.Shared.waiting.Load(); n != maxQueue {
		t.Errorf("%d demands wait, want %d", n, maxQueue)
	}
	together.Shared.waiting.Store(0)
	together.Shared.deserted.Store(maxDeserted)
	if _, err := together.Take(t.Context(), "a", demandOn("a", ratelimit.Take, 1)); err != nil {
		t.Errorf("too many deserted calls of another lane: %v", err)
	}
	together.deserted = 1
	if _, err := together.Take(t.Context(), "a", demandOn("a", ratelimit.Take, 1)); !errors.Is(err, ratelimit.ErrUnavailable) {
		t.Errorf("too many deserted calls: %v", err)
	}
	if n := together.Shared.waiting.Load(); n != 0 {
		t.Errorf("%d demands wait, want none", n)
	}
}

// TestTogetherPartlyCorrupt: of equal Takes, those that were decided before the state turned out to be corrupt are answered so.
func TestTogetherPartlyCorrupt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, together := newRoad(t)
		decide := together.Decide
		together.Decide = func(ctx context.Context, gate *Gate, groups []Group) error {
			err := decide(ctx, gate, groups)
			if g := &groups[0]; g.Times == 3 {
				g.Err = ratelimit.ErrCorruptState
				g.Results[2] = ratelimit.Result{}
			}
			return err
		}
		open := r.close()
		var wg sync.WaitGroup
		var decided, corrupt atomic.Int64
		ask := func(key string) {
			wg.Go(func() {
				switch _, err := together.Take(t.Context(), key, demandOn(key, ratelimit.Take, 1)); {
				case err == nil:
					decided.Add(1)
				case errors.Is(err, ratelimit.ErrCorruptState):
					corrupt.Add(1)
				default:
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		for _, key := range []string{"a", "b", "c", "c", "c"} {
			ask(key)
		}
		open()
		wg.Wait()
		if decided.Load() != 4 || corrupt.Load() != 1 {
			t.Errorf("%d decided and %d corrupt, want 4 and 1", decided.Load(), corrupt.Load())
		}
	})
}

// TestGroupAwait: nobody is given the result of a call before.
func TestGroupAwait(t *testing.T) {
	g := Group{Demands: []ratelimit.Demand{demandOn("a", ratelimit.Take, 1)}, Results: []ratelimit.Result{{Allowed: true, Limit: 1}}, passengers: []*passenger{{}}}
	if !g.await(new(trip)) || g.Times != 1 || g.Results[0] != (ratelimit.Result{}) {
		t.Errorf("%d times, results %+v", g.Times, g.Results)
	}
}

// TestTogetherExact counts what many callers, some of whom leave, are admitted on a few keys.
func TestTogetherExact(t *testing.T) {
	_, together := newRoad(t)
	together.Shared.Timeout = time.Minute
	const callers, each, keys, limit = 64, 300, 5, 1000
	var admitted [keys]atomic.Int64
	var unknown [keys]atomic.Int64
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(c), 1))
			for range each {
				k := r.IntN(keys)
				key := fmt.Sprint(k)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				if r.IntN(10) == 0 {
					go cancel()
				}
				res, err := together.Take(ctx, key, demandOn(key, ratelimit.Take, 1))
				cancel()
				switch {
				case errors.Is(err, ratelimit.ErrOutcomeUnknown):
					unknown[k].Add(1)
				case err == nil && res.Allowed:
					admitted[k].Add(1)
				case err != nil && !errors.Is(err, context.Canceled):
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for k := range keys {
		if n, most := admitted[k].Load(), admitted[k].Load()+unknown[k].Load(); n > limit || most < limit {
			t.Errorf("key %d: %d admitted and %d unknown, limit %d", k, n, unknown[k].Load(), limit)
		}
	}
}

// TestTogetherSharing has callers ask in two lanes by turns, so that what one lane has done with is the other's while the first is still under way with
// more groups than fit into a call. Each gets his own answer, and nobody is told that his time is over.
func TestTogetherSharing(t *testing.T) {
	r, one := newRoad(t)
	one.Shared.Timeout = 2 * time.Second // ticks of an eighth
	two := &Together{Decide: r.decide, Shared: one.Shared}
	var wg sync.WaitGroup
	end := time.Now().Add(time.Second)
	for i := range 4 * maxGroups {
		wg.Go(func() {
			key := fmt.Sprint(i)
			for n := int64(1); n < 1000 && time.Now().Before(end); n++ {
				lane := one
				if n%2 == 0 {
					lane = two
				}
				if res, err := lane.Take(t.Context(), key, demandOn(key, ratelimit.Take, 1)); err != nil || res.Remaining != 1000-n {
					t.Errorf("Take %d of %s: %+v, %v", n, key, res, err)
				}
			}
		})
	}
	wg.Wait()
	if n := one.Shared.waiting.Load(); n != 0 {
		t.Errorf("%d demands wait, want none", n)
	}
}

// TestTogetherShortTimeout asks a road that is closed with the shortest timeout there is.
func TestTogetherShortTimeout(t *testing.T) {
	r, together := newRoad(t)
	together.Shared.Timeout = time.Nanosecond
	open := r.close()
	defer open()
	for range 3 {
		if _, err := together.Take(t.Context(), "a", demandOn("a", ratelimit.Take, 1)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	}
}

// TestTogetherLateTimers holds that timers that are late, as all are, do not make answers late by the sum, and that nobody who comes while
// one is late is answered early.
func TestTogetherLateTimers(t *testing.T) {
	const timeout = 100 * time.Millisecond
	for _, tt := range []struct{ late, most, least time.Duration }{ // late is by how much at most
		{0, timeout, timeout - timeout/timeoutTicks},
		{2 * time.Millisecond, timeout + 2*time.Millisecond, timeout - timeout/timeoutTicks - 2*time.Millisecond},
		// By more than a tick: who came meanwhile may have come at the end.
		{30 * time.Millisecond, timeout + 2*30*time.Millisecond, timeout - 2*timeout/timeoutTicks},
		{200 * time.Millisecond, timeout + 2*200*time.Millisecond, timeout - 2*timeout/timeoutTicks},
	} {
		synctest.Test(t, func(t *testing.T) {
			r, together := newRoad(t)
			shared := together.Shared
			shared.timer = time.AfterFunc(time.Hour, func() {
				time.Sleep(time.Duration(rand.Int64N(int64(tt.late) + 1)))
				shared.onTick()
			})
			shared.timer.Stop()
			open := r.close()
			for range 50 { // at any time between two ticks, and with or without others who wait
				time.Sleep(time.Duration(rand.Int64N(int64(2 * timeout))))
				var wg sync.WaitGroup
				for range 5 {
					time.Sleep(time.Duration(rand.Int64N(int64(timeout / 5))))
					wg.Go(func() {
						start := time.Now()
						_, err := together.Take(t.Context(), "a", demandOn("a", ratelimit.Take, 1))
						if !errors.Is(err, context.DeadlineExceeded) {
							t.Errorf("%v", err)
						}
						if waited := time.Since(start); waited > tt.most || waited < tt.least {
							t.Errorf("timers late by %v: answered after %v", tt.late, waited)
						}
					})
				}
				wg.Wait()
			}
			open()
			synctest.Wait()
		})
	}
}
