package batch

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

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend/internal/gate"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/driver"
)

// fakeServer executes batches on a memory store, and can be stopped for a while.
type fakeServer struct {
	store   *memorystore.Store
	mu      sync.Mutex
	stopped chan struct{} // nil if it runs
	before  bool          // it stops batches before the first byte is sent, not after the last
	batches [][]string    // what each batch held
}

func newFakeServer(t testing.TB) (*fakeServer, *Queue) {
	store, err := memorystore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	s := &fakeServer{store: store}
	return s, &Queue{Execute: s.execute, Shared: &Shared{Timeout: 100 * time.Millisecond}}
}

func (s *fakeServer) stop() (resume func()) {
	c := make(chan struct{})
	s.mu.Lock()
	s.stopped = c
	s.mu.Unlock()
	return func() {
		s.mu.Lock()
		s.stopped = nil
		s.mu.Unlock()
		close(c)
	}
}

func (s *fakeServer) execute(_ context.Context, g *gate.Gate, groups []Group) {
	var held []string
	for _, g := range groups {
		d := g.Demands[0]
		held = append(held, fmt.Sprintf("%d× %v of %d on %s", g.Times, d.Op, d.N, d.Key))
	}
	s.mu.Lock()
	stopped := s.stopped
	s.batches = append(s.batches, held)
	s.mu.Unlock()
	if stopped != nil {
		if !s.before {
			g.Open()
		}
		<-stopped
	}
	if !g.Open() {
		return
	}
	for i := range groups {
		g := &groups[i]
		if len(g.Demands) > 1 {
			g.Err = s.store.TakeAll(context.Background(), g.Demands, g.Results)
			continue
		}
		for j := range g.Times {
			g.Results[j], g.Err = s.store.Take(context.Background(), g.Demands[0])
		}
	}
}

func (s *fakeServer) held() [][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.batches
}

func demandOn(key string, op driver.Op, n int64) driver.Demand {
	limit := algorithm.SlidingLog(driver.PerHour("hour", 1000))
	return driver.Demand{Key: key, Algorithm: limit, Op: op, N: n}
}

// take takes one unit of key, which is its stored key too.
func take(ctx context.Context, q *Queue, key string) (driver.Result, error) {
	return q.Take(ctx, key, demandOn(key, driver.OpTake, 1))
}

// TestQueue: while batches are on their way requests wait. The next batch has them in their order,
// with equal Takes as one group.
func TestQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, queue := newFakeServer(t)
		ctx := t.Context()
		if res, err := take(ctx, queue, "a"); err != nil || res.Remaining != 999 {
			t.Fatalf("%+v, %v", res, err)
		}
		resume := s.stop()
		var wg sync.WaitGroup
		results := make([]driver.Result, 12)
		ask := func(i int, key string, op driver.Op, n int64) {
			wg.Go(func() {
				var err error
				if results[i], err = queue.Take(ctx, key, demandOn(key, op, n)); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		ask(0, "b", driver.OpTake, 1) // two calls go at once
		ask(1, "c", driver.OpTake, 1)
		ask(2, "a", driver.OpTake, 2) // these wait
		ask(3, "a", driver.OpTake, 2)
		ask(4, "b", driver.OpTake, 1)
		ask(5, "a", driver.OpTake, 2)
		ask(6, "a", driver.OpPeek, 1)
		ask(7, "a", driver.OpTake, 2)
		ask(8, "a", driver.OpPeek, 1)
		ask(9, "a", driver.OpPeek, 1)
		wg.Go(func() {
			out := make([]driver.Result, 2)
			ds := []driver.Demand{demandOn("a", driver.OpTake, 2),
				demandOn("b", driver.OpTake, 1)}
			if err := queue.TakeAll(ctx, []string{"a", "b"}, ds, out); err != nil {
				t.Error(err)
			}
			results[10] = out[0]
		})
		synctest.Wait()
		ask(11, "a", driver.OpTake, 2)
		resume()
		wg.Wait()
		want := "[[1× take of 1 on a] [1× take of 1 on b] [1× take of 1 on c] " +
			"[3× take of 2 on a 1× take of 1 on b 1× peek of 1 on a 1× take of 2 on a " +
			"1× peek of 1 on a 1× peek of 1 on a 1× take of 2 on a 1× take of 2 on a]]"
		if got := fmt.Sprint(s.held()); got != want {
			t.Errorf("sent %s, want %s", got, want)
		}
		for i, want := range map[int]int64{2: 997, 3: 995, 5: 993, 6: 993, 7: 991, 8: 991, 10: 989,
			11: 987} {
			if results[i].Remaining != want {
				t.Errorf("answer %d: remaining %d, want %d", i, results[i].Remaining, want)
			}
		}
	})
}

// TestQueueAbandon: a request that is abandoned before its batch is sent is not in it. One that is
// abandoned later has an unknown outcome, and the others of its batch are answered.
func TestQueueAbandon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, queue := newFakeServer(t)
		resume := s.stop()
		var wg sync.WaitGroup
		ask := func(ctx context.Context, key string, check func(driver.Result, error)) {
			wg.Go(func() { check(take(ctx, queue, key)) })
			synctest.Wait()
		}
		gone, leave := context.WithCancel(t.Context())
		ask(gone, "a", func(_ driver.Result, err error) {
			if !errors.Is(err, driver.ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) {
				t.Errorf("abandoned when sent: %v", err)
			}
		})
		ask(t.Context(), "b", func(res driver.Result, err error) {
			if err != nil || res.Remaining != 999 {
				t.Errorf("sent with it: %+v, %v", res, err)
			}
		})
		ask(gone, "c", func(_ driver.Result, err error) {
			if !errors.Is(err, driver.ErrUnavailable) ||
				errors.Is(err, driver.ErrOutcomeUnknown) {
				t.Errorf("abandoned when queued: %v", err)
			}
		})
		ask(t.Context(), "c", func(res driver.Result, err error) {
			if err != nil || res.Remaining != 999 {
				t.Errorf("queued with it: %+v, %v", res, err)
			}
		})
		leave()
		synctest.Wait()
		resume()
		wg.Wait()
	})
}

// TestQueueHanging: a batch that hangs delays others for the timeout and no longer.
func TestQueueHanging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, queue := newFakeServer(t)
		resume := s.stop()
		var wg sync.WaitGroup
		ask := func(key string) {
			start := time.Now()
			wg.Go(func() {
				_, err := take(t.Context(), queue, key)
				if !errors.Is(err, driver.ErrOutcomeUnknown) ||
					!errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s: %v", key, err)
				}
				if took := time.Since(start); took <= 90*time.Millisecond ||
					took > 100*time.Millisecond {
					t.Errorf("%s: answered after %v", key, took)
				}
			})
			synctest.Wait()
		}
		ask("first")
		ask("second")
		time.Sleep(50 * time.Millisecond)
		ask("third") // waits until the two before are abandoned
		wg.Wait()
		if got := len(s.held()); got != 3 {
			t.Errorf("%d batches, want 3 that hang", got)
		}
		done := make(chan error)
		go func() {
			_, err := take(t.Context(), queue, "last")
			done <- err
		}()
		synctest.Wait()
		if got := len(s.held()); got != 4 {
			t.Errorf("%d batches, want one more", got)
		}
		resume()
		if err := <-done; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if n := queue.Shared.abandoned.Load(); queue.running != 0 || n != 0 {
			t.Errorf("%d workers, %d abandoned, want none", queue.running, n)
		}
	})
}

// TestQueueMany: if requests do not fit into one batch, those that wait for the second one fail in
// time with the error that they were not sent.
func TestQueueMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, queue := newFakeServer(t)
		resume := s.stop()
		var wg sync.WaitGroup
		var unsent, unknown atomic.Int64
		ask := func(key string) {
			wg.Go(func() {
				start := time.Now()
				_, err := take(t.Context(), queue, key)
				switch {
				case errors.Is(err, driver.ErrOutcomeUnknown):
					unknown.Add(1)
				case errors.Is(err, driver.ErrUnavailable):
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
		resume()
	})
}

// TestQueueArguments: a batch has no more demands than fit into one command, however many requests
// with however many demands wait. It has as many as fit, in the order of the requests.
func TestQueueArguments(t *testing.T) {
	for _, each := range []int{1, 2, 20, 21, 32, 255, driver.MaxDemands} {
		synctest.Test(t, func(t *testing.T) {
			s, queue := newFakeServer(t)
			queue.Shared.Timeout = time.Hour
			var batches [][]Group
			queue.Execute = func(ctx context.Context, g *gate.Gate, groups []Group) {
				s.mu.Lock()
				batches = append(batches, slices.Clone(groups))
				s.mu.Unlock()
				s.execute(ctx, g, groups)
			}
			resume := s.stop()
			var wg sync.WaitGroup
			requests := 2 + min(maxGroups, 3*maxDemands/each)
			for i := range requests {
				n := each
				if i < 2 {
					n = 1 // two batches are on their way while the others wait
				}
				keys, ds := make([]string, n), make([]driver.Demand, n)
				for j := range ds {
					keys[j] = fmt.Sprint(i, "-", j)
					ds[j] = demandOn(keys[j], driver.OpTake, 1)
				}
				wg.Go(func() {
					if err := queue.TakeAll(t.Context(), keys, ds,
						make([]driver.Result, n)); err != nil {
						t.Error(err)
					}
				})
				synctest.Wait()
			}
			resume()
			wg.Wait()
			next, fit := 2, min(maxGroups, max(1, maxDemands/each))
			for _, groups := range batches[2:] {
				if want := min(fit, requests-next); len(groups) != want {
					t.Errorf("%d demands each: %d groups in a batch, want %d",
						each, len(groups), want)
				}
				for _, g := range groups {
					if want := fmt.Sprint(next, "-0"); g.Keys[0] != want {
						t.Errorf("%d demands each: %s comes where %s should", each, g.Keys[0], want)
					}
					next++
				}
			}
		})
	}
}

// TestQueueEqualArguments: equal Takes, each of which may be an argument, count as well.
func TestQueueEqualArguments(t *testing.T) {
	groups := []Group{{Demands: make([]driver.Demand, 1000), Times: 1},
		{Demands: make([]driver.Demand, 1), Times: maxDemands - 1000},
		{Demands: make([]driver.Demand, 1), Times: 1}}
	if n := fitting(groups); n != 2 {
		t.Errorf("%d groups fit, want 2", n)
	}
	if groups[1].Times++; fitting(groups) != 1 {
		t.Error("a batch has more demands than fit")
	}
}

// TestQueueFull: beyond the bounds requests are refused at once.
func TestQueueFull(t *testing.T) {
	_, queue := newFakeServer(t)
	queue.Shared.queued.Store(MaxQueued) // as if by another queue
	if _, err := take(t.Context(), queue, "a"); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("full queue: %v", err)
	}
	if n := queue.Shared.queued.Load(); n != MaxQueued {
		t.Errorf("%d slots are in use, want %d", n, MaxQueued)
	}
	queue.Shared.queued.Store(0)
	queue.Shared.abandoned.Store(MaxAbandoned)
	if _, err := take(t.Context(), queue, "a"); err != nil {
		t.Errorf("too many abandoned batches of another queue: %v", err)
	}
	queue.abandoned = 1
	if _, err := take(t.Context(), queue, "a"); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("too many abandoned batches: %v", err)
	}
	if n := queue.Shared.queued.Load(); n != 0 {
		t.Errorf("%d slots are in use, want none", n)
	}
}

// TestQueuePartlyCorrupt: of equal Takes, those that were decided before the state was found
// corrupt have their results.
func TestQueuePartlyCorrupt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, queue := newFakeServer(t)
		execute := queue.Execute
		queue.Execute = func(ctx context.Context, g *gate.Gate, groups []Group) {
			execute(ctx, g, groups)
			if g := &groups[0]; g.Times == 3 {
				g.Err = driver.ErrCorruptState
				g.Results[2] = driver.Result{}
			}
		}
		resume := s.stop()
		var wg sync.WaitGroup
		var decided, corrupt atomic.Int64
		ask := func(key string) {
			wg.Go(func() {
				switch _, err := take(t.Context(), queue, key); {
				case err == nil:
					decided.Add(1)
				case errors.Is(err, driver.ErrCorruptState):
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
		resume()
		wg.Wait()
		if decided.Load() != 4 || corrupt.Load() != 1 {
			t.Errorf("%d decided and %d corrupt, want 4 and 1", decided.Load(), corrupt.Load())
		}
	})
}

// TestGroupMarkSent: no caller gets the result of an earlier batch.
func TestGroupMarkSent(t *testing.T) {
	g := Group{
		Demands:  []driver.Demand{demandOn("a", driver.OpTake, 1)},
		Results:  []driver.Result{{Allowed: true, Limit: driver.Limit{Max: 1}}},
		requests: []*request{{}},
	}
	if !g.markSent(new(batch)) || g.Times != 1 || g.Results[0] != (driver.Result{}) {
		t.Errorf("%d times, results %+v", g.Times, g.Results)
	}
}

// TestQueueExact counts the units that many callers, some of which cancel, are admitted on a few
// keys.
func TestQueueExact(t *testing.T) {
	_, queue := newFakeServer(t)
	queue.Shared.Timeout = time.Minute
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
				res, err := take(ctx, queue, key)
				cancel()
				switch {
				case errors.Is(err, driver.ErrOutcomeUnknown):
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
		if n, most := admitted[k].Load(), admitted[k].Load()+unknown[k].Load(); n > limit ||
			most < limit {
			t.Errorf("key %d: %d admitted and %d unknown, limit %d", k, n, unknown[k].Load(), limit)
		}
	}
}

// TestQueueSharing: callers use two queues by turns, so that a request that one queue has released
// is used by the other while the first still sends more groups than fit into a batch. Each caller
// gets its own result, and none a timeout.
func TestQueueSharing(t *testing.T) {
	s, one := newFakeServer(t)
	one.Shared.Timeout = 2 * time.Second // ticks of an eighth
	two := &Queue{Execute: s.execute, Shared: one.Shared}
	var wg sync.WaitGroup
	end := time.Now().Add(time.Second)
	for i := range 4 * maxGroups {
		wg.Go(func() {
			key := fmt.Sprint(i)
			for n := int64(1); n < 1000 && time.Now().Before(end); n++ {
				queue := one
				if n%2 == 0 {
					queue = two
				}
				if res, err := take(t.Context(), queue, key); err != nil ||
					res.Remaining != 1000-n {
					t.Errorf("Take %d of %s: %+v, %v", n, key, res, err)
				}
			}
		})
	}
	wg.Wait()
	if n := one.Shared.queued.Load(); n != 0 {
		t.Errorf("%d slots are in use, want none", n)
	}
}

// TestQueueShortTimeout calls a stopped server with the shortest timeout.
func TestQueueShortTimeout(t *testing.T) {
	s, queue := newFakeServer(t)
	queue.Shared.Timeout = time.Nanosecond
	resume := s.stop()
	defer resume()
	for range 3 {
		if _, err := take(t.Context(), queue, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	}
}

// TestQueueLateTimers: timers that are late, as all are, do not add up, and no request that is
// enqueued while a timer is late times out early.
func TestQueueLateTimers(t *testing.T) {
	const timeout = 100 * time.Millisecond
	for _, tt := range []struct{ late, most, least time.Duration }{ // late is by how much at most
		{0, timeout, timeout - timeout/ticksPerTimeout},
		{2 * time.Millisecond, timeout + 2*time.Millisecond,
			timeout - timeout/ticksPerTimeout - 2*time.Millisecond},
		// Late by more than a tick: requests that are queued meanwhile count as queued at its end.
		{30 * time.Millisecond, timeout + 2*30*time.Millisecond,
			timeout - 2*timeout/ticksPerTimeout},
		{200 * time.Millisecond, timeout + 2*200*time.Millisecond,
			timeout - 2*timeout/ticksPerTimeout},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, queue := newFakeServer(t)
			shared := queue.Shared
			shared.timer = time.AfterFunc(time.Hour, func() {
				time.Sleep(time.Duration(rand.Int64N(int64(tt.late) + 1)))
				shared.onTimer()
			})
			shared.timer.Stop()
			resume := s.stop()
			for range 50 { // at any time between two ticks, with or without others waiting
				time.Sleep(time.Duration(rand.Int64N(int64(2 * timeout))))
				var wg sync.WaitGroup
				for range 5 {
					time.Sleep(time.Duration(rand.Int64N(int64(timeout / 5))))
					wg.Go(func() {
						start := time.Now()
						_, err := take(t.Context(), queue, "a")
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
			resume()
			synctest.Wait()
		})
	}
}

// TestQueueSingle: each request is a batch of its own, sent at once whatever other requests are
// in flight. It times out like others, and no more are sent while too many hang.
func TestQueueSingle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, queue := newFakeServer(t)
		queue.Single = true
		if res, err := take(t.Context(), queue, "a"); err != nil || res.Remaining != 999 {
			t.Fatalf("%+v, %v", res, err)
		}
		resume := s.stop()
		const callers = 20
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				start := time.Now()
				_, err := take(t.Context(), queue, "a")
				if !errors.Is(err, driver.ErrOutcomeUnknown) ||
					time.Since(start) > 100*time.Millisecond {
					t.Errorf("%v after %v", err, time.Since(start))
				}
			})
			synctest.Wait()
		}
		if got := s.held(); len(got) != 1+callers || len(got[callers]) != 1 {
			t.Errorf("%d batches, want %d; the last is %v", len(got), 1+callers, got[len(got)-1])
		}
		wg.Wait()
		synctest.Wait()
		if n := queue.Shared.Abandoned(); n != callers || queue.running != 0 {
			t.Errorf("%d batches are abandoned and %d are not, want %d and 0",
				n, queue.running, callers)
		}
		for queue.Shared.Abandoned() < MaxAbandoned {
			for range MaxAbandoned / 4 {
				go take(t.Context(), queue, "a")
			}
			time.Sleep(queue.Shared.Timeout)
			synctest.Wait()
		}
		sent, refused := len(s.held()), queue.Shared.Refused()
		_, err := take(t.Context(), queue, "a")
		if !errors.Is(err, driver.ErrUnavailable) || len(s.held()) != sent {
			t.Errorf("with %d abandoned batches: %v", MaxAbandoned, err)
		}
		if n := queue.Shared.Refused(); n != refused+1 {
			t.Errorf("%d requests are counted as refused, want %d", n, refused+1)
		}
		resume()
		synctest.Wait()
		if n := queue.Shared.Abandoned(); n != 0 {
			t.Errorf("%d batches are abandoned after the server has answered", n)
		}
	})
}

// TestQueueSingleFull: no more than MaxAbandoned single requests are sent at once. Others wait, and
// are sent when those before them are answered.
func TestQueueSingleFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const beyond = 10
		s, queue := newFakeServer(t)
		queue.Single = true
		resume := s.stop()
		var wg sync.WaitGroup
		for range MaxAbandoned + beyond {
			wg.Go(func() {
				if _, err := take(t.Context(), queue, "a"); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if n := len(s.held()); n != MaxAbandoned {
			t.Errorf("%d requests are sent at once, want %d", n, MaxAbandoned)
		}
		resume()
		wg.Wait()
		if n := len(s.held()); n != MaxAbandoned+beyond {
			t.Errorf("%d requests are sent, want %d", n, MaxAbandoned+beyond)
		}
	})
}

// TestDequeue: requests leave the queue in their order, whatever part of it is dequeued at once,
// and what was dequeued is neither counted nor referred to.
func TestDequeue(t *testing.T) {
	q := &Queue{Shared: new(Shared)}
	var next, queued int64
	for _, n := range []int{1, 1, 1, 90, 3, 0, 4} {
		for range 100 / (n + 1) {
			q.reserveLocked()
			q.requests = append(q.requests, &request{enqueued: queued})
			queued++
		}
		n = min(n, len(q.waitingLocked()))
		for _, r := range q.waitingLocked()[:n] {
			if r.enqueued != next {
				t.Fatalf("request %d is dequeued, want %d", r.enqueued, next)
			}
			next++
		}
		q.dequeueLocked(n)
		if left := len(q.waitingLocked()); int64(left) != queued-next ||
			q.Shared.queued.Load() != int64(left) {
			t.Fatalf("%d wait and %d are counted, want %d",
				left, q.Shared.queued.Load(), queued-next)
		}
		for _, r := range q.requests[:q.head] {
			if r != nil {
				t.Fatal("a request that was dequeued is referred to")
			}
		}
	}
	if queued < 100 || q.waitingLocked()[0].enqueued != next {
		t.Fatalf("%d requests, the first of %d that wait is %d", queued, len(q.waitingLocked()),
			next)
	}
}
