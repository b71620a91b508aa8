package budgetmodel

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/driver"
)

// A Storm makes random calls on one key from several goroutines of several clients at once. Unless
// Forgets is set, nothing may leave a window during the storm.
type Storm struct {
	Key     string
	Clients []Client
	Workers int
	Seed    uint64
	// Patience returns the timeout of a call's context; nil means no timeout.
	Patience func(*rand.Rand) time.Duration
	// MayFail means that calls may fail as unavailable, and answers may get lost.
	MayFail bool
	// Forgets means that units leave their windows, so sums are not checked.
	Forgets bool

	once    sync.Once
	workers []*worker
	budgets []counted
	errs    chan error
}

// counted is what the callers know of one budget.
type counted struct {
	mu   sync.Mutex
	most int64 // Max of the limiter
	held int64 // units certainly charged, without use beyond reservations
	Books
}

// Books counts the units charged to a budget when everything is settled.
type Books struct {
	Certain  int64 // least units charged
	Possible int64 // most units charged, with all calls of unknown outcome
	Unknown  int   // calls of unknown outcome
}

// worker is one goroutine.
type worker struct {
	*Storm
	rand *rand.Rand
	open []*opened
}

// opened is an unsettled reservation or an unreleased lease.
type opened struct {
	reservation *ratelimit.Reservation
	lease       *ratelimit.Lease
	n           []int64 // units certainly reserved
}

// start makes the workers.
func (s *Storm) start() {
	for _, l := range s.Clients[0] {
		s.budgets = append(s.budgets, counted{most: l.Max()})
	}
	s.errs = make(chan error, 1)
	for i := range s.Workers {
		r := rand.New(rand.NewPCG(s.Seed, uint64(i)+1))
		s.workers = append(s.workers, &worker{Storm: s, rand: r})
	}
}

// Round makes all workers call at once and returns when they are done.
func (s *Storm) Round(t testing.TB, calls int) {
	t.Helper()
	s.once.Do(s.start)
	s.each(t, func(w *worker) error {
		for range calls {
			if err := w.call(); err != nil {
				return err
			}
		}
		return nil
	})
}

// Settle settles everything and returns what is then charged to each budget.
func (s *Storm) Settle(t testing.TB) []Books {
	t.Helper()
	s.each(t, func(w *worker) error {
		for len(w.open) > 0 {
			if err := w.settle(w.Clients[0]); err != nil {
				return err
			}
		}
		return nil
	})
	books := make([]Books, len(s.budgets))
	for i := range books {
		books[i] = s.budgets[i].Books
	}
	return books
}

func (s *Storm) each(t testing.TB, f func(*worker) error) {
	t.Helper()
	var wg sync.WaitGroup
	for _, w := range s.workers {
		wg.Go(func() {
			if err := f(w); err != nil {
				select {
				case s.errs <- err:
				default:
				}
			}
		})
	}
	wg.Wait()
	select {
	case err := <-s.errs:
		t.Fatalf("seed %d: %v", s.Seed, err)
	default:
	}
}

func (w *worker) call() error {
	c := w.Clients[w.rand.IntN(len(w.Clients))]
	switch p := w.rand.IntN(16); {
	case p < 1:
		return w.allow(c)
	case p < 6:
		return w.reserve(c)
	case p < 8:
		return w.acquire(c)
	case len(w.open) == 0:
		return nil
	case p < 10:
		return w.extend(c)
	}
	return w.settle(c)
}

// context returns the context of a call, which may end at any time.
func (w *worker) context() (context.Context, context.CancelFunc) {
	if w.Patience == nil {
		return context.Background(), func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	timer := time.AfterFunc(w.Patience(w.rand), cancel)
	return ctx, func() { timer.Stop(); cancel() }
}

// units returns random units for each budget, so many that the workers together exceed the limits.
func (w *worker) units(c Client) []int64 {
	n := make([]int64, len(c))
	for i, l := range c {
		n[i] = w.rand.Int64N(l.Max()/4 + 1)
	}
	if w.rand.IntN(2) == 0 {
		n[len(n)-1] = 0 // no call in flight
	}
	return n
}

func (w *worker) claims(c Client, n []int64) []ratelimit.Claim {
	claims := make([]ratelimit.Claim, len(n))
	for i := range n {
		claims[i] = ratelimit.Claim{Limiter: c[i], Key: w.Key, N: n[i]}
	}
	return claims
}

// failed books a failed call that would have charged n. It returns err if a call may not fail like
// that.
func (w *worker) failed(err error, n []int64) error {
	switch {
	case !w.MayFail && w.Patience == nil, !errors.Is(err, driver.ErrUnavailable) &&
		!errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, driver.ErrOutcomeUnknown):
		for i := range n {
			w.budgets[i].add(0, n[i], 1)
		}
	}
	return nil
}

func (w *worker) allow(c Client) error {
	ctx, cancel := w.context()
	defer cancel()
	n := w.units(c)
	for i := range n {
		n[i] /= 8 // it is never given back
	}
	n[len(n)-1] = 0
	results, err := ratelimit.AllowAll(ctx, w.claims(c, n)...)
	if err != nil {
		return w.failed(err, n)
	}
	if !results[ratelimit.Binding(results)].Allowed {
		return nil
	}
	for i := range n {
		w.budgets[i].add(n[i], n[i], 0)
	}
	return w.hold(n)
}

func (w *worker) reserve(c Client) error {
	ctx, cancel := w.context()
	defer cancel()
	n := w.units(c)
	r, err := ratelimit.ReserveAll(ctx, w.claims(c, n)...)
	if err != nil {
		return w.failed(err, n)
	}
	if !r.Allowed() {
		return r.Cancel(ctx)
	}
	w.open = append(w.open, &opened{reservation: r, n: n})
	return w.hold(n)
}

// acquire acquires a call in flight. It waits only if its context has a timeout.
func (w *worker) acquire(c Client) error {
	ctx, cancel := w.context()
	defer cancel()
	n := make([]int64, len(c))
	n[len(n)-1] = 1
	acquire := c[len(c)-1].TryAcquire
	if w.Patience != nil && w.rand.IntN(2) == 0 {
		acquire = c[len(c)-1].Acquire
	}
	lease, err := acquire(ctx, w.Key)
	if err != nil {
		return w.failed(err, n)
	}
	if !lease.Allowed() {
		return lease.Release(ctx)
	}
	w.open = append(w.open, &opened{lease: lease, n: n})
	return w.hold(n)
}

func (w *worker) extend(c Client) error {
	o := w.open[w.rand.IntN(len(w.open))]
	if o.lease != nil {
		return nil
	}
	ctx, cancel := w.context()
	defer cancel()
	n := w.units(c)
	n[w.rand.IntN(len(n))] = 0
	res, err := o.reservation.Extend(ctx, n...)
	if err != nil {
		return w.failed(err, n)
	}
	if !res[ratelimit.Binding(res)].Allowed {
		return nil
	}
	for i := range n {
		o.n[i] += n[i]
	}
	return w.hold(n)
}

// settle settles something, sometimes from its token and through another client. Units that are
// given back no longer count as held when the settlement begins.
func (w *worker) settle(c Client) error {
	i := w.rand.IntN(len(w.open))
	o := w.open[i]
	w.open = append(w.open[:i], w.open[i+1:]...)
	used := make([]int64, len(o.n))
	settle := func(ctx context.Context) error { return o.lease.Release(ctx) }
	if r := o.reservation; r != nil {
		if w.rand.IntN(3) == 0 {
			text, err := r.Token()
			if err != nil {
				return err
			}
			if r, err = ratelimit.Resume(text, c...); err != nil {
				return err
			}
		}
		settle = r.Cancel
		if w.rand.IntN(4) > 0 {
			w.use(used, o.n)
			settle = func(ctx context.Context) error { return r.Commit(ctx, used...) }
		}
	}
	used[len(used)-1] = 0 // calls in flight are released
	for i, n := range o.n {
		w.budgets[i].release(max(0, n-used[i]))
	}
	unknown, err := w.repeat(settle)
	for i, n := range o.n {
		if unknown == 0 {
			w.budgets[i].add(used[i], used[i], 0)
		} else {
			w.budgets[i].add(min(used[i], n), max(used[i], n), unknown)
		}
	}
	return err
}

// use sets used to what was used of n units: mostly less, sometimes more than n.
func (w *worker) use(used, n []int64) {
	for i := range n {
		used[i] = w.rand.Int64N(n[i]/8 + 1)
		if w.rand.IntN(8) == 0 {
			used[i] = n[i] + w.rand.Int64N(n[i]/4+1)
		}
	}
}

// repeat settles until it succeeds, and returns how often the outcome was unknown.
func (w *worker) repeat(settle func(context.Context) error) (unknown int, err error) {
	const tries = 2000
	for range tries {
		ctx, cancel := w.context()
		err = settle(ctx)
		cancel()
		switch {
		case err == nil:
			return unknown, nil
		case errors.Is(err, driver.ErrOutcomeUnknown):
			unknown++
		default:
			time.Sleep(time.Millisecond) // nothing was settled
		}
		if !w.MayFail || !errors.Is(err, driver.ErrUnavailable) {
			return unknown, err
		}
	}
	return unknown, err
}

// hold books admitted units: all units held at a time fit into the limits.
func (w *worker) hold(n []int64) error {
	for i := range n {
		b := &w.budgets[i]
		b.mu.Lock()
		b.held += n[i]
		held := b.held
		b.mu.Unlock()
		if held > b.most && !w.Forgets {
			return fmt.Errorf("%d units of budget %d are held, want at most %d", held, i, b.most)
		}
	}
	return nil
}

func (b *counted) release(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held -= n
}

func (b *counted) add(certain, possible int64, unknown int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.Certain += certain
	b.Possible += possible
	if possible > certain {
		b.Unknown += unknown
	}
}
