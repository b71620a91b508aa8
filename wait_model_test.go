package ratelimit_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
)

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

// TestWaitModel compares 10,000 random histories with a simple model: when and how each call ends,
// and how often the store is called. Calls begin at random, and some end by cancellation or by
// their deadline.
func TestWaitModel(t *testing.T) {
	const histories = 10_000
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
		if outcomes[what] < histories/10 {
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
