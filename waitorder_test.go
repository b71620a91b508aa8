package ratelimit_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
)

// waits are calls of WaitN on one key that begin one after another.
type waits struct {
	t     *testing.T
	start time.Time
	wg    sync.WaitGroup

	mu    sync.Mutex
	ended []string // "name after time: outcome", in order
	res   map[string]ratelimit.Result
	err   map[string]error
}

func newWaits(t *testing.T) *waits {
	return &waits{t: t, start: time.Now(), res: make(map[string]ratelimit.Result),
		err: make(map[string]error)}
}

// begin begins a call and returns when it waits or has ended.
func (w *waits) begin(ctx context.Context, l *ratelimit.Limiter, name string, n int64) {
	w.t.Helper()
	w.wg.Go(func() {
		res, err := l.WaitN(ctx, "k", n)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.res[name], w.err[name] = res, err
		w.ended = append(w.ended,
			fmt.Sprintf("%s after %v: %s", name, time.Since(w.start), waitOutcome(res, err)))
	})
	synctest.Wait()
}

// want waits for the end of all calls. Those that end at the same time may do so in any order.
func (w *waits) want(want ...string) {
	w.t.Helper()
	w.wg.Wait()
	slices.Sort(w.ended)
	slices.Sort(want)
	if !slices.Equal(w.ended, want) {
		w.t.Errorf("calls ended as\n%q\nwant\n%q", w.ended, want)
	}
}

// wantNoQueue checks that no queue of l is left.
func wantNoQueue(t *testing.T, l *ratelimit.Limiter) {
	t.Helper()
	if keys := ratelimit.WaitingKeys(l); len(keys) > 0 {
		t.Errorf("queues are left: %q", keys)
	}
}

// tenSeconds is a limit of at most n units in ten seconds.
func tenSeconds(n int64) ratelimit.Limit {
	return ratelimit.Limit{Name: "w", Max: n, Window: 10 * time.Second}
}

// TestWaitInOrder: calls are admitted in the order in which they began, and a call that needs fewer
// units does not overtake. Only the first calls the store.
func TestWaitInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &mapStore{}
		limiter := newLimiter(t, store, tenSeconds(2))
		mustAllow(t, limiter, 2)
		store.made()
		w := newWaits(t)
		w.begin(t.Context(), limiter, "a", 1)
		w.begin(t.Context(), limiter, "b", 2)
		w.begin(t.Context(), limiter, "c", 0)
		w.begin(t.Context(), limiter, "d", 1)
		w.want("a after 10s: admitted", "b after 20s: admitted", "c after 30s: admitted",
			"d after 30s: admitted")
		// a is refused and admitted; b, which comes next, too; so is c, and d is admitted at once.
		wantCalls(t, store, "one take", "one take", "one take", "one take", "one peek",
			"one peek", "one take")
		wantNoQueue(t, limiter)
	})
}

// TestWaitBurst: when many units become free at once, each admission takes one call of the store.
func TestWaitBurst(t *testing.T) {
	const n = 50
	for _, limits := range [][]ratelimit.Limit{{tenSeconds(n)},
		{tenSeconds(n), ratelimit.PerHour("hour", 2*n)}} {
		synctest.Test(t, func(t *testing.T) {
			store := &mapStore{}
			limiter := newLimiter(t, store, limits...)
			mustAllow(t, limiter, n)
			store.made()
			w := newWaits(t)
			for i := range n {
				w.begin(t.Context(), limiter, fmt.Sprint(i), 1)
			}
			w.wg.Wait()
			if calls := len(store.made()); calls != n+1 {
				t.Errorf("%d calls of the store for %d admissions after one refusal", calls, n)
			}
			if took := time.Since(w.start); took != 10*time.Second {
				t.Errorf("took %v", took)
			}
			wantNoQueue(t, limiter)
		})
	}
}

// TestWaitGivesUp: a call that gives up takes nothing, and the others move on.
func TestWaitGivesUp(t *testing.T) {
	for _, tt := range []struct {
		name  string
		leave []string
		want  []string
		calls int
	}{
		{"the first", []string{"a"},
			[]string{"a after 3s: canceled", "b after 10s: admitted", "c after 20s: admitted"}, 5},
		{"one in the middle", []string{"b"},
			[]string{"a after 10s: admitted", "b after 3s: canceled", "c after 20s: admitted"}, 4},
		{"the last", []string{"c"},
			[]string{"a after 10s: admitted", "b after 20s: admitted", "c after 3s: canceled"}, 4},
		{"the first two", []string{"b", "a"},
			[]string{"a after 3s: canceled", "b after 3s: canceled", "c after 10s: admitted"}, 3},
		{"all", []string{"c", "b", "a"},
			[]string{"a after 3s: canceled", "b after 3s: canceled", "c after 3s: canceled"}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &mapStore{}
				limiter := newLimiter(t, store, tenSeconds(1))
				mustAllow(t, limiter, 1)
				store.made()
				w := newWaits(t)
				cancel := make(map[string]func())
				for _, name := range []string{"a", "b", "c"} {
					var ctx context.Context
					ctx, cancel[name] = context.WithCancel(t.Context())
					w.begin(ctx, limiter, name, 1)
				}
				time.Sleep(3 * time.Second)
				for _, name := range tt.leave {
					cancel[name]()
					synctest.Wait()
				}
				w.want(tt.want...)
				if calls := len(store.made()); calls != tt.calls {
					t.Errorf("%d calls of the store, want %d", calls, tt.calls)
				}
				wantNoQueue(t, limiter)
				for _, name := range []string{"a", "b", "c"} {
					// Only the first has been refused by the store.
					asked := name == "a"
					if w.err[name] != nil && (w.res[name].RetryAfter > 0) != asked {
						t.Errorf("%s: %+v beside %v", name, w.res[name], w.err[name])
					}
				}
			})
		})
	}
}

// TestWaitBehindDeadline: a call behind others ends at its own deadline, without a refusal, and
// leaves the queue. One that has become the first ends at once when it cannot be admitted in time.
func TestWaitBehindDeadline(t *testing.T) {
	for _, tt := range []struct {
		name     string
		n        int64
		deadline time.Duration
		want     string
		next     string
		refused  bool
	}{
		{"before the first is admitted", 2, 9 * time.Second, "b after 9s: deadline exceeded",
			"c after 10s: admitted", false},
		{"more units", 3, 9 * time.Second, "b after 9s: deadline exceeded",
			"c after 10s: admitted", false},
		{"fewer units", 1, 9 * time.Second, "b after 9s: deadline exceeded",
			"c after 10s: admitted", false},
		{"as the first, too late", 2, 19 * time.Second, "b after 10s: deadline exceeded",
			"c after 10s: admitted", true},
		{"as the first, in time", 2, 21 * time.Second, "b after 20s: admitted",
			"c after 20s: admitted", false},
		{"none", 2, math.MaxInt64, "b after 20s: admitted",
			"c after 20s: admitted", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &mapStore{}
				limiter := newLimiter(t, store, tenSeconds(3))
				mustAllow(t, limiter, 3)
				w := newWaits(t)
				ctx, cancel := context.WithDeadline(t.Context(), w.start.Add(tt.deadline))
				defer cancel()
				w.begin(t.Context(), limiter, "a", 2)
				time.Sleep(3 * time.Second)
				w.begin(ctx, limiter, "b", tt.n)
				w.begin(t.Context(), limiter, "c", 1)
				w.want("a after 10s: admitted", tt.want, tt.next)
				switch res := w.res["b"]; {
				case tt.refused && (res.Allowed || res.RetryAfter != 10*time.Second):
					t.Errorf("the result is %+v, want the refusal", res)
				case !tt.refused && w.err["b"] != nil && res != (ratelimit.Result{}):
					t.Errorf("the result is %+v, although the store was not asked", res)
				}
				wantNoQueue(t, limiter)
			})
		})
	}
}

// TestWaitCopiesShareTheQueue: WithPolicy and WithObserver make limiters that wait in the same
// queue; New makes one with queues of its own.
func TestWaitCopiesShareTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &mapStore{}
		limiter := newLimiter(t, store, tenSeconds(1))
		mustAllow(t, limiter, 1)
		store.made()
		var r recorder
		w := newWaits(t)
		w.begin(t.Context(), limiter, "a", 1)
		w.begin(t.Context(), limiter.WithPolicy(ratelimit.FailOpen), "b", 1)
		w.begin(t.Context(), limiter.WithObserver(r.observe), "c", 1)
		wantCalls(t, store, "one take")
		other := newLimiter(t, store, ratelimit.Limit{Name: "another", Max: 1, Window: time.Second})
		if _, err := other.Wait(t.Context(), "k"); err != nil {
			t.Error(err)
		}
		w.want("a after 10s: admitted", "b after 20s: admitted", "c after 30s: admitted")
		if o := r.seen[0]; o.Waited != 30*time.Second || o.Elapsed != o.Waited || !o.Admitted {
			t.Errorf("observed %+v, want a wait of 30 s", o)
		}
		wantNoQueue(t, limiter)
	})
}

// TestWaitOfOtherKeys: calls that wait for one key do not delay those of another.
func TestWaitOfOtherKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := newLimiter(t, &mapStore{}, tenSeconds(1))
		mustAllow(t, limiter, 1)
		w := newWaits(t)
		w.begin(t.Context(), limiter, "a", 1)
		if _, err := limiter.Wait(t.Context(), "another"); err != nil || time.Since(w.start) != 0 {
			t.Errorf("after %v: %v", time.Since(w.start), err)
		}
		w.want("a after 10s: admitted")
	})
}

// TestWaitInvalidBehindOthers: a demand that can never be admitted fails at once, even behind
// others.
func TestWaitInvalidBehindOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &mapStore{}
		limiter := newLimiter(t, store, tenSeconds(1))
		mustAllow(t, limiter, 1)
		w := newWaits(t)
		w.begin(t.Context(), limiter, "a", 1)
		store.made()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for _, tt := range []struct {
			ctx  context.Context
			n    int64
			want error
		}{
			{t.Context(), 2, ratelimit.ErrExceedsLimit},
			{t.Context(), -1, ratelimit.ErrInvalid},
			{ended, 1, context.Canceled},
		} {
			_, err := limiter.WaitN(tt.ctx, "k", tt.n)
			wantErr(t, err, tt.want)
		}
		if time.Since(w.start) != 0 {
			t.Errorf("errors after %v, want at once", time.Since(w.start))
		}
		wantCalls(t, store)
		w.want("a after 10s: admitted")
		wantNoQueue(t, limiter)
	})
}

// panickingStore panics in its next calls, panics times.
type panickingStore struct {
	mapStore
	panics int
}

func (s *panickingStore) Take(ctx context.Context, d driver.Demand) (ratelimit.Result, error) {
	if s.panics > 0 {
		s.panics--
		time.Sleep(time.Second)
		panic("planted")
	}
	return s.mapStore.Take(ctx, d)
}

// TestWaitPanic: a store that panics does not block the queue.
func TestWaitPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &panickingStore{panics: 1}
		limiter := newLimiter(t, store, tenSeconds(1))
		go func() {
			defer func() { _ = recover() }()
			_, _ = limiter.Wait(t.Context(), "k")
			t.Error("the store did not panic")
		}()
		synctest.Wait()
		w := newWaits(t)
		w.begin(t.Context(), limiter, "a", 1)
		w.begin(t.Context(), limiter, "b", 1)
		w.want("a after 1s: admitted", "b after 11s: admitted")
		wantNoQueue(t, limiter)
	})
}

// fail makes a store return err, or decide again if err is nil.
func (s *mapStore) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// TestWaitUnavailable: an error of the store ends the wait of the first, and the next calls the
// store.
func TestWaitUnavailable(t *testing.T) {
	for _, cause := range []error{
		ratelimit.ErrUnavailable, ratelimit.ErrOutcomeUnknown, driver.ErrCapacity,
		driver.ErrContended, driver.ErrCorruptState, driver.ErrClosed, errors.New("another"),
	} {
		for _, policy := range []ratelimit.Policy{ratelimit.FailClosed, ratelimit.FailOpen,
			ratelimit.FailWait} {
			t.Run(fmt.Sprintf("%v, %v", cause, policy), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := &mapStore{}
					limiter := newLimiter(t, store, tenSeconds(1))
					mustAllow(t, limiter, 1)
					w := newWaits(t)
					w.begin(t.Context(), limiter.WithPolicy(policy), "a", 1)
					w.begin(t.Context(), limiter, "b", 1)
					time.Sleep(5 * time.Second)
					store.fail(cause)
					time.Sleep(10 * time.Second)
					store.fail(nil)
					w.wg.Wait()

					waitsOut := policy == ratelimit.FailWait &&
						(cause == ratelimit.ErrUnavailable || cause == driver.ErrContended)
					opens := policy == ratelimit.FailOpen && driver.IsOutage(cause)
					switch a, b := w.err["a"], w.err["b"]; {
					case waitsOut:
						if a != nil || b != nil || w.res["a"].Source != ratelimit.SourceStore {
							t.Errorf("did not wait until the store was available: %v, %v", a, b)
						}
						if took := time.Since(w.start); took < 25*time.Second ||
							took > 26*time.Second {
							t.Errorf("both were admitted after %v, want up to a second more than "+
								"25 s", took)
						}
					case opens:
						if a != nil || w.res["a"].Source != ratelimit.SourceOpen || b != cause {
							t.Errorf("%+v, %v, %v", w.res["a"], a, b)
						}
					case a != cause || b != cause:
						t.Errorf("%v, %v; want %v", a, b, cause)
					}
					wantNoQueue(t, limiter)
				})
			})
		}
	}
}

// TestWaitOutageEnds: waiting for a store that is unavailable ends with the context, with an error
// that wraps both causes. The store is not called often meanwhile.
func TestWaitOutageEnds(t *testing.T) {
	for _, name := range []string{"deadline", "cancel"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &mapStore{err: ratelimit.ErrUnavailable}
				limiter := newLimiter(t, store, tenSeconds(1)).WithPolicy(ratelimit.FailWait)
				ctx, cancel := context.WithCancel(t.Context())
				want := context.Canceled
				if name == "deadline" {
					want = context.DeadlineExceeded
					ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
				}
				defer cancel()
				stop := time.AfterFunc(time.Minute, cancel)
				defer stop.Stop()
				start := time.Now()
				res, err := limiter.Wait(ctx, "k")
				wantErr(t, err, want, ratelimit.ErrUnavailable)
				if res != (ratelimit.Result{}) {
					t.Errorf("%+v beside the error", res)
				}
				if took := time.Since(start); took > time.Minute || took < 59*time.Second {
					t.Errorf("ended after %v", took)
				}
				if calls := len(store.made()); calls < 60 || calls > 140 {
					t.Errorf("%d calls of the store in a minute", calls)
				}
				wantNoQueue(t, limiter)
			})
		})
	}
}

// TestWaitUnknownAfterOutage: an unknown outcome ends a wait under FailWait, although an outage
// does not: the units may have been taken.
func TestWaitUnknownAfterOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &mapStore{err: ratelimit.ErrUnavailable}
		limiter := newLimiter(t, store, tenSeconds(1)).WithPolicy(ratelimit.FailWait)
		w := newWaits(t)
		w.begin(t.Context(), limiter, "a", 1)
		time.Sleep(3 * time.Second)
		store.fail(ratelimit.ErrOutcomeUnknown)
		w.wg.Wait()
		if err := w.err["a"]; err != ratelimit.ErrOutcomeUnknown ||
			time.Since(w.start) > 4*time.Second {
			t.Errorf("after %v: %v", time.Since(w.start), err)
		}
	})
}

// modelWait is a call of WaitN in a random history. Times are in milliseconds from the beginning of
// the history.
type modelWait struct {
	begin    int
	n        int64
	cancel   int // or 0
	deadline int // or 0

	end  int
	what string // how it ends
}

const (
	waitAdmitted = "admitted"
	waitTooLate  = "deadline exceeded"
	waitCanceled = "canceled"
)

// modelWindow is the window of random histories. No two times at which calls begin or end by
// themselves are the same modulo the window, so no unit becomes free at such a time.
const modelWindow = 1000

// modelQueue is the queue of a key as WaitN describes it, written for clarity.
type modelQueue struct {
	most   int64
	taken  []modelWait // end is when the call took its units
	queue  []*modelWait
	wakeUp int // when the first calls the store again, or 0
	calls  int
}

// run fills in how each call ends.
func (m *modelQueue) run(waits []*modelWait) {
	const never = 1 << 30
	for now := 0; ; {
		next := never
		for _, w := range waits {
			for _, at := range []int{w.begin, w.cancel, w.deadline} {
				if at > now && at < next {
					next = at
				}
			}
		}
		if m.wakeUp > now && m.wakeUp < next {
			next = m.wakeUp
		}
		if next == never {
			return
		}
		now = next
		for _, w := range waits {
			switch {
			case w.begin == now:
				m.begin(w, now)
			case w.cancel == now:
				m.leave(w, now, waitCanceled)
			case w.deadline == now:
				m.leave(w, now, waitTooLate)
			}
		}
		if m.wakeUp == now {
			m.ask(now)
		}
	}
}

func (m *modelQueue) begin(w *modelWait, now int) {
	m.queue = append(m.queue, w)
	if len(m.queue) == 1 {
		m.ask(now)
	}
}

func (m *modelQueue) leave(w *modelWait, now int, what string) {
	i := slices.Index(m.queue, w)
	if i < 0 {
		return
	}
	w.end, w.what = now, what
	m.queue = slices.Delete(m.queue, i, i+1)
	if i == 0 {
		m.ask(now)
	}
}

// ask calls the store for the first and those behind it, until one has to sleep.
func (m *modelQueue) ask(now int) {
	m.wakeUp = 0
	if len(m.queue) == 0 {
		return
	}
	first := m.queue[0]
	m.calls++
	free := m.most
	for _, t := range m.taken {
		if t.end > now-modelWindow {
			free -= t.n
		}
	}
	for _, t := range m.taken {
		if free >= first.n {
			break
		}
		if t.end > now-modelWindow {
			free += t.n
			m.wakeUp = t.end + modelWindow
		}
	}
	if m.wakeUp == 0 {
		m.taken = append(m.taken, modelWait{end: now, n: first.n})
		m.leave(first, now, waitAdmitted)
		return
	}
	if first.deadline > 0 && first.deadline <= m.wakeUp {
		m.leave(first, now, waitTooLate)
	}
}

// randomWaits returns calls that begin and give up at random.
func randomWaits(rng *rand.Rand, most int64) []*modelWait {
	residues := rng.Perm(modelWindow - 1)
	at := func(windows int) int {
		residue := residues[0] + 1
		residues = residues[1:]
		return rng.IntN(windows)*modelWindow + residue
	}
	waits := make([]*modelWait, 1+rng.IntN(12))
	windows := 1 + rng.IntN(4)
	for i := range waits {
		w := &modelWait{begin: at(windows), n: 1 + rng.Int64N(most)}
		switch rng.IntN(4) {
		case 0:
			w.cancel = at(2 * windows)
		case 1:
			w.deadline = at(2 * windows)
		}
		if w.cancel > 0 && w.cancel <= w.begin || w.deadline > 0 && w.deadline <= w.begin {
			w.cancel, w.deadline = 0, 0
		}
		waits[i] = w
	}
	return waits
}

// TestWaitModel compares random histories with a simple model: when and how each call ends,
// and how often the store is called. Calls begin at random, and some end by cancellation or by
// their deadline.
func TestWaitModel(t *testing.T) {
	histories := depth.Of[uint64](2000, 10_000)
	outcomes := make(map[string]int)
	for seed := uint64(0); seed < histories; seed += 500 {
		synctest.Test(t, func(t *testing.T) {
			for i := range uint64(500) {
				if t.Failed() {
					return
				}
				testWaitHistory(t, seed+i, outcomes)
			}
		})
	}
	t.Log(outcomes)
	for _, what := range []string{waitAdmitted, waitTooLate, waitCanceled} {
		if outcomes[what] < int(histories)/10 {
			t.Errorf("%d calls end by %s: too few to prove anything", outcomes[what], what)
		}
	}
}

func testWaitHistory(t *testing.T, seed uint64, outcomes map[string]int) {
	rng := rand.New(rand.NewPCG(seed, 0))
	most := 1 + rng.Int64N(5)
	want := randomWaits(rng, most)
	got := make([]modelWait, len(want))
	store := &mapStore{}
	limiter := newLimiter(t, store,
		ratelimit.Limit{Name: "w", Max: most, Window: modelWindow * time.Millisecond})
	start := time.Now()
	after := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	var wg sync.WaitGroup
	for i, w := range want {
		got[i] = *w
		wg.Go(func() {
			time.Sleep(time.Until(after(w.begin)))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if w.cancel > 0 {
				stop := time.AfterFunc(time.Until(after(w.cancel)), cancel)
				defer stop.Stop()
			}
			if w.deadline > 0 {
				var cancel func()
				ctx, cancel = context.WithDeadline(ctx, after(w.deadline))
				defer cancel()
			}
			res, err := limiter.WaitN(ctx, "k", w.n)
			got[i].end, got[i].what = int(time.Since(start).Milliseconds()), waitOutcome(res, err)
		})
	}
	wg.Wait()
	model := modelQueue{most: most}
	model.run(want)
	for i, w := range want {
		if got[i] != *w {
			t.Errorf("history %d, limit %d: call %d is %+v, want %+v", seed, most, i, got[i], *w)
		}
		outcomes[w.what]++
	}
	if calls := len(store.made()); calls != model.calls {
		t.Errorf("history %d: %d calls of the store, want %d", seed, calls, model.calls)
	}
	if keys := ratelimit.WaitingKeys(limiter); len(keys) > 0 {
		t.Errorf("history %d: %d queues are left", seed, len(keys))
	}
	if t.Failed() {
		slices.SortFunc(want, func(a, b *modelWait) int { return cmp.Compare(a.begin, b.begin) })
		for _, w := range want {
			t.Logf("%+v", *w)
		}
	}
}

func waitOutcome(res ratelimit.Result, err error) string {
	switch {
	case err == nil && res.Allowed:
		return waitAdmitted
	case res.Allowed, errors.Is(err, ratelimit.ErrUnavailable):
		return fmt.Sprintf("%+v, %v", res, err)
	case errors.Is(err, context.DeadlineExceeded):
		return waitTooLate
	case errors.Is(err, context.Canceled):
		return waitCanceled
	}
	return fmt.Sprint(err)
}
