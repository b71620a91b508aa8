package budgetmodel

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

// A Storm makes random calls on one key from several goroutines of several clients at once, and
// repeats every settlement, in part from another client at the same time. Unless Forgets is set, no
// unit may leave a window and no hold may time out while its client lives.
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
	// Instances is the number of clients that each admit their share of the limits in an outage, as
	// those of layer.Degraded do; 0 is none.
	Instances int64

	once    sync.Once
	workers []*worker
	budgets [calls + 1]counted // by limiter
	errs    chan error
}

// counted is what the callers know of one limiter.
type counted struct {
	mu   sync.Mutex
	most int64 // Max of the limiter
	held int64 // units certainly recorded or held, without use beyond reservations
	Books
}

// Books counts the units of a limiter when everything is settled.
type Books struct {
	Certain  int64 // recorded for certain
	Possible int64 // recorded at most: also by calls of unknown outcome
	Held     int64 // may be held until the time-out: by reservations of unknown outcome
	Unknown  int   // calls of unknown outcome
}

// worker is one goroutine.
type worker struct {
	*Storm
	rand *rand.Rand
	open []*opened
}

// opened is a reservation that is not settled.
type opened struct {
	*ratelimit.Reservation
	n     map[int]int64 // units that are certainly held
	maybe bool          // the policy admitted it: nothing may be held
	local bool          // it was admitted in an outage: other clients may not find it
	late  int64         // renewals that may arrive after a settlement, which then may count again
}

// start makes the workers.
func (s *Storm) start() {
	for i, l := range s.Clients[0].all() {
		s.budgets[i].most = l.Max()
		if s.Instances > 0 {
			s.budgets[i].most += s.Instances * (l.Max() / s.Instances)
		}
	}
	s.errs = make(chan error, 1)
	for i := range s.Workers {
		r := rand.New(rand.NewPCG(s.Seed, uint64(i)+1))
		s.workers = append(s.workers, &worker{Storm: s, rand: r})
	}
}

// Round makes all workers call at once and returns when they are done.
func (s *Storm) Round(calls int) error {
	s.once.Do(s.start)
	return s.each(func(w *worker) error {
		for range calls {
			if err := w.call(); err != nil {
				return err
			}
		}
		return nil
	})
}

// Settle settles everything.
func (s *Storm) Settle() error {
	return s.each(func(w *worker) error {
		for len(w.open) > 0 {
			if err := w.settle(); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *Storm) each(f func(*worker) error) error {
	var wg sync.WaitGroup
	for _, w := range s.workers {
		wg.Go(func() {
			if err := f(w); err != nil {
				select {
				case s.errs <- fmt.Errorf("seed %d: %w", s.Seed, err):
				default:
				}
			}
		})
	}
	wg.Wait()
	select {
	case err := <-s.errs:
		return err
	default:
		return nil
	}
}

// Unknown returns the number of calls of unknown outcome.
func (s *Storm) Unknown() (n int) {
	for i := range s.budgets {
		n += s.budgets[i].Unknown
	}
	return n
}

// Check returns an error unless store has recorded what was used when everything is settled. If
// timedOut is set, the holds of reservations of unknown outcome have timed out.
func (s *Storm) Check(ctx context.Context, store driver.Store, timedOut bool) error {
	return s.CheckWithin(ctx, store, timedOut, 0)
}

// CheckWithin is Check if so many units were forced that it is not known how often.
func (s *Storm) CheckWithin(
	ctx context.Context, store driver.Store, timedOut bool, unconfirmed int64,
) error {
	var errs []error
	for i, accounts := range s.Clients[0].limits.accounts() {
		b := s.budgets[i].Books
		if timedOut {
			b.Held = 0
		}
		for _, a := range accounts {
			got, err := a.charged(ctx, store, s.Key)
			if err == nil && (got < b.Certain-unconfirmed ||
				got > b.Possible+b.Held+unconfirmed) {
				err = fmt.Errorf("seed %d: %d units of %v are charged, want %d to %d and %d held",
					s.Seed, got, a.limit, b.Certain, b.Possible, b.Held)
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// charged returns how many units are recorded or held, even if they exceed Max.
func (a *account) charged(ctx context.Context, store driver.Store, key string) (int64, error) {
	limit := a.limit
	limit.Max = driver.MaxUnits
	var rule driver.Algorithm = algorithm.SlidingLog(limit)
	if a.rule == window {
		rule = algorithm.FixedWindow(limit)
	}
	switch {
	case a.rule == flight:
		rule = algorithm.InFlight(limit.Name, limit.Max).WithTimeout(a.timeout)
	case a.budget:
		rule = algorithm.Budget(rule).WithTimeout(a.timeout)
	}
	res, err := store.Take(ctx, driver.Demand{Key: key, Algorithm: rule, Op: driver.OpPeek, N: 1})
	return limit.Max - res.Remaining, err
}

func (w *worker) call() error {
	c := w.Clients[w.rand.IntN(len(w.Clients))]
	switch p := w.rand.IntN(15); {
	case p < 1:
		return w.allow(c)
	case p < 8:
		return w.reserve(c)
	case len(w.open) == 0:
		return nil
	case p < 10:
		return w.extend()
	}
	return w.settle()
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

// units returns random units for each limiter, so many that the workers together exceed the limits.
func (w *worker) units(c Client, limiters ...int) map[int]int64 {
	n := make(map[int]int64)
	for _, i := range limiters {
		n[i] = w.rand.Int64N(c.all()[i].Max()/4 + 1)
	}
	return n
}

func (w *worker) claims(c Client, n map[int]int64) (claims []ratelimit.Claim) {
	for i, l := range c.all() {
		if units, ok := n[i]; ok {
			claims = append(claims, ratelimit.Claim{Limiter: l, Key: w.Key, N: units})
		}
	}
	return claims
}

// failed returns err if a call may not fail like that. It reports whether the outcome is unknown.
func (w *worker) failed(err error) (unknown bool, _ error) {
	if !w.MayFail && w.Patience == nil || !errors.Is(err, driver.ErrUnavailable) &&
		!errors.Is(err, context.Canceled) {
		return false, err
	}
	return errors.Is(err, driver.ErrOutcomeUnknown), nil
}

func (w *worker) allow(c Client) error {
	ctx, cancel := w.context()
	defer cancel()
	n := w.units(c, requests, tokens)
	n[requests], n[tokens] = n[requests]/8, n[tokens]/8 // they stay recorded
	results, err := ratelimit.AllowAll(ctx, w.claims(c, n)...)
	if err != nil {
		unknown, err := w.failed(err)
		if unknown {
			w.book(n, func(_ int, b *counted, n int64) {
				b.Possible, b.Unknown = b.Possible+n, b.Unknown+1
			})
		}
		return err
	}
	switch res := results[ratelimit.Binding(results)]; {
	case !res.Allowed && res.Source != driver.SourceLocal:
		return nil
	case !res.Allowed, res.Source == driver.SourceOpen: // the store may have recorded it
		w.book(n, func(_ int, b *counted, n int64) { b.Possible += n })
		return nil
	}
	w.book(n, taken(results[0].Source))
	return w.hold(n)
}

// taken books units that were taken. Those that were taken in an outage may have been recorded by
// the call whose answer was lost, too.
func taken(source driver.Source) func(int, *counted, int64) {
	return func(_ int, b *counted, n int64) {
		b.Certain, b.Possible = b.Certain+n, b.Possible+n
		if source == driver.SourceLocal {
			b.Possible += n
		}
	}
}

// reserve reserves, or acquires if its context ends.
func (w *worker) reserve(c Client) error {
	ctx, cancel := w.context()
	defer cancel()
	n := w.units(c, [][]int{
		{tokens, calls}, {requests, tokens, money, calls}, {calls}, {money, calls}, {tokens},
	}[w.rand.IntN(5)]...)
	n[requests] /= 8
	if n[requests] == 0 {
		delete(n, requests)
	}
	decide := ratelimit.ReserveAll
	if w.Patience != nil && w.rand.IntN(4) == 0 {
		decide = ratelimit.AcquireAll
	}
	r, err := decide(ctx, w.claims(c, n)...)
	if err != nil {
		unknown, err := w.failed(err)
		if unknown {
			w.maybeHeld(n)
		}
		return err
	}
	if !r.Allowed() {
		if r.Result().Source == driver.SourceLocal { // the store may have admitted it
			w.maybeHeld(n)
		}
		return r.Cancel(ctx)
	}
	source := r.Result().Source
	o := &opened{Reservation: r, n: n, maybe: source == driver.SourceOpen,
		local: source == driver.SourceLocal}
	w.open = append(w.open, o)
	requested := map[int]int64{requests: n[requests]}
	defer delete(n, requests)
	if o.maybe {
		w.book(requested, func(_ int, b *counted, n int64) { b.Possible += n })
		delete(n, requests)
		w.book(n, func(_ int, b *counted, n int64) { b.Held += n })
		return nil
	}
	w.book(requested, taken(r.Result().Source))
	return w.hold(n)
}

// maybeHeld books units of a reservation of unknown outcome.
func (w *worker) maybeHeld(n map[int]int64) {
	w.book(n, func(i int, b *counted, n int64) {
		b.Unknown++
		if i == requests {
			b.Possible += n
		} else {
			b.Held += n
		}
	})
}

func (w *worker) extend() error {
	o := w.open[w.rand.IntN(len(w.open))]
	ctx, cancel := w.context()
	defer cancel()
	c := w.Clients[0]
	more := make(map[int]int64)
	for i := range o.n {
		if units := w.units(c, i)[i]; i != calls && units > 0 && o.n[i]+units <= c.all()[i].Max() {
			more[i] = units
		}
	}
	res, err := o.ExtendAll(ctx, w.claimsOf(o, more)...)
	switch {
	case err != nil:
		unknown, err := w.failed(err)
		if unknown {
			w.maybeHeld(more)
			o.late++
		}
		return err
	case len(res) == 0 || !res[ratelimit.Binding(res)].Allowed:
		return nil
	}
	if res[0].Source == driver.SourceOpen && !o.maybe {
		o.maybe = true
		w.freed(o.n, nil)
	}
	for i := range more {
		o.n[i] += more[i]
	}
	if o.maybe {
		w.book(more, func(_ int, b *counted, n int64) { b.Held += n })
		return nil
	}
	return w.hold(more)
}

// claimsOf returns claims with the limiters of o.
func (w *worker) claimsOf(o *opened, n map[int]int64) (claims []ratelimit.Claim) {
	for _, c := range o.Claims() {
		for i, limits := range w.Clients[0].all() {
			if units, ok := n[i]; ok && slices.Equal(limits.Limits(), c.Limiter.Limits()) {
				claims = append(claims, ratelimit.Claim{Limiter: c.Limiter, N: units})
			}
		}
	}
	return claims
}

// freed takes off what a settlement frees. It does so before the call.
func (w *worker) freed(n, used map[int]int64) {
	w.book(n, func(i int, b *counted, n int64) { b.held -= max(0, n-used[i]) })
}

// settle settles something, sometimes through another client, and then once more; or through two
// clients at once.
func (w *worker) settle() error {
	at := w.rand.IntN(len(w.open))
	o := w.open[at]
	w.open = slices.Delete(w.open, at, at+1)
	used := make(map[int]int64)
	for i, n := range o.n {
		if i != calls && w.rand.IntN(5) > 0 {
			used[i] = w.rand.Int64N(n/8 + 1)
			if w.rand.IntN(8) == 0 {
				used[i] = n + w.rand.Int64N(n/4+1)
			}
		} else if i != calls {
			used[i] = 0
		}
	}
	twins := []*opened{o}
	if w.rand.IntN(3) == 0 && !o.maybe && !o.local && len(o.n) > 0 {
		text, err := o.Token()
		switch {
		case errors.Is(err, ratelimit.ErrInvalid): // it has no units
		case err != nil:
			return err
		default:
			twins = nil
			for _, c := range w.Clients {
				r, err := ratelimit.Resume(text, c.all()...)
				if err != nil {
					return err
				}
				twin := *o
				twin.Reservation = r
				twins = append(twins, &twin)
			}
		}
	}
	if !o.maybe {
		w.freed(o.n, used)
	}
	w.book(used, func(_ int, b *counted, n int64) {
		if !o.maybe {
			b.Certain += n
		}
		b.Possible += n * (1 + o.late)
	})
	return w.commit(used, o, twins)
}

// commit commits through all of twins, at once or one after the other. One of them records.
func (w *worker) commit(used map[int]int64, o *opened, twins []*opened) error {
	errs := make([]error, len(twins))
	var wg sync.WaitGroup
	for i, twin := range twins {
		claims := w.claimsOf(twin, used)
		own := &worker{Storm: w.Storm, rand: rand.New(rand.NewPCG(w.rand.Uint64(), 0))}
		wg.Go(func() {
			errs[i] = own.repeat(func(ctx context.Context) error {
				return twin.CommitAll(ctx, claims...)
			})
		})
		if w.rand.IntN(2) == 0 {
			wg.Wait()
		}
	}
	wg.Wait()
	recorded := o.maybe
	for _, err := range errs {
		if err != nil && !errors.Is(err, ratelimit.ErrNotHeld) {
			return err
		}
		recorded = recorded || err == nil
	}
	if !recorded {
		return fmt.Errorf("%v of %v used: %w", used, o.n, errs[0])
	}
	if err := twins[0].Commit(context.Background()); !errors.Is(err, ratelimit.ErrNotHeld) {
		return fmt.Errorf("the second Commit of one reservation: got %w, want ErrNotHeld", err)
	}
	return twins[0].Cancel(context.Background())
}

// repeat makes a call until it is answered.
func (w *worker) repeat(call func(context.Context) error) (err error) {
	const tries = 2000
	for range tries {
		ctx, cancel := w.context()
		err = call(ctx)
		cancel()
		if !w.MayFail || !errors.Is(err, driver.ErrUnavailable) {
			return err
		}
		if !errors.Is(err, driver.ErrOutcomeUnknown) {
			time.Sleep(time.Millisecond)
		}
	}
	return err
}

// hold books units of an admission: all that are held at a time fit into the limits.
func (w *worker) hold(n map[int]int64) (err error) {
	w.book(n, func(_ int, b *counted, n int64) {
		if b.held += n; b.held > b.most && !w.Forgets {
			err = fmt.Errorf("%d units are held, want at most %d", b.held, b.most)
		}
	})
	return err
}

func (w *worker) book(n map[int]int64, do func(int, *counted, int64)) {
	for i, units := range n {
		b := &w.budgets[i]
		b.mu.Lock()
		do(i, b, units)
		b.mu.Unlock()
	}
}
