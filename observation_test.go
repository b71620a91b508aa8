package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/driver"
)

// recorder keeps observations. The results are copied, since they are valid during the call only.
type recorder struct {
	mu   sync.Mutex
	seen []ratelimit.Observation
}

func (r *recorder) observe(_ context.Context, o ratelimit.Observation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o.Results = slices.Clone(o.Results)
	r.seen = append(r.seen, o)
}

// TestObservation: each call of a method is observed once, as its caller gets it.
func TestObservation(t *testing.T) {
	for _, limits := range [][]ratelimit.Limit{{ratelimit.PerDay("day", 3)},
		{ratelimit.PerHour("hour", 5), ratelimit.PerDay("day", 3)}} {
		for _, m := range methods {
			var r recorder
			l := newLimiter(t, &mapStore{}, limits...).WithObserver(r.observe)
			n := int64(1)
			if m.usesN {
				n = 2
			}
			if m.op == driver.OpReset {
				n = 0
			}
			if err := m.call(l, t.Context(), "user", n); err != nil {
				t.Fatalf("%s: %v", m.name, err)
			}
			if len(r.seen) != 1 {
				t.Fatalf("%s: %d observations, want 1", m.name, len(r.seen))
			}
			o := r.seen[0]
			if o.Key != "user" || o.Op != m.op || o.N != n || !slices.Equal(o.Limits, limits) ||
				o.Err != nil || !o.Admitted || o.Elapsed <= 0 || o.Waited != 0 {
				t.Errorf("%s: %+v", m.name, o)
			}
			for i, res := range o.Results {
				if !res.Allowed || res.Limit.Max != limits[i].Max {
					t.Errorf("%s: result %d is %+v", m.name, i, res)
				}
			}
		}
	}
}

// TestObservationZeroUnits: AllowN of no units is observed as a peek for one.
func TestObservationZeroUnits(t *testing.T) {
	var r recorder
	l := newLimiter(t, &mapStore{}, ratelimit.PerDay("day", 3)).WithObserver(r.observe)
	if _, err := l.AllowN(t.Context(), "k", 0); err != nil {
		t.Fatal(err)
	}
	if o := r.seen[0]; len(r.seen) != 1 || o.Op != driver.OpPeek || o.N != 1 {
		t.Errorf("%+v", r.seen)
	}
}

// TestObservationErrors: calls that fail are observed with the error that their caller gets and
// zero results.
func TestObservationErrors(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	cause := errors.New("the store's own")
	for _, tt := range []struct {
		name string
		ctx  context.Context
		key  string
		err  error
		want error
	}{
		{"store", t.Context(), "k", cause, cause},
		{"unavailable", t.Context(), "k", ratelimit.ErrUnavailable, ratelimit.ErrUnavailable},
		{"no key", t.Context(), "", nil, ratelimit.ErrInvalid},
		{"ended", ended, "k", nil, context.Canceled},
	} {
		for _, m := range methods {
			var r recorder
			l := newLimiter(t, &mapStore{err: tt.err}, minuteAndHour...).WithObserver(r.observe)
			err := m.call(l, tt.ctx, tt.key, 1)
			wantErr(t, err, tt.want)
			if len(r.seen) != 1 || r.seen[0].Err != err || r.seen[0].Admitted ||
				!slices.Equal(r.seen[0].Results, make([]ratelimit.Result, 2)) {
				t.Errorf("%s, %s: %+v for the error %v", tt.name, m.name, r.seen, err)
			}
		}
	}
}

// TestObservationOpen: a call that the policy admits is observed as admitted.
func TestObservationOpen(t *testing.T) {
	var r recorder
	l := newLimiter(t, failing{err: ratelimit.ErrUnavailable}, minuteAndHour...).
		WithPolicy(ratelimit.FailOpen).WithObserver(r.observe)
	if _, err := l.Allow(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	o := r.seen[0]
	if !o.Admitted || o.Err != nil ||
		o.Results[1] != (ratelimit.Result{
			Allowed: true, Source: ratelimit.SourceOpen, Limit: minuteAndHour[1], Units: 1}) {
		t.Errorf("%+v", o)
	}
}

// TestObservationWait: a wait is one observation with the time that it slept, whether it was
// admitted or given up.
func TestObservationWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		l := newLimiter(t, &mapStore{},
			ratelimit.Limit{Name: "w", Max: 1, Window: 10 * time.Second}).WithObserver(r.observe)
		mustAllow(t, l, 1)
		if _, err := l.Wait(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		refusal, err := l.Wait(ctx, "k")
		wantErr(t, err, context.DeadlineExceeded)
		if len(r.seen) != 3 {
			t.Fatalf("%d observations, want 3", len(r.seen))
		}
		if o := r.seen[1]; o.Op != driver.OpTake || !o.Admitted ||
			o.Waited != 10*time.Second || o.Elapsed != o.Waited {
			t.Errorf("a wait that was admitted: %+v", o)
		}
		if o := r.seen[2]; o.Admitted || o.Err != err || o.Results[0] != refusal ||
			o.Waited != 0 {
			t.Errorf("a wait that was given up: %+v", o)
		}
	})
}

// TestObservationCounts: observers are called by concurrent calls, and count exactly what callers
// got.
func TestObservationCounts(t *testing.T) {
	const goroutines, calls, most = 16, 50, 100
	for _, limits := range [][]ratelimit.Limit{{ratelimit.PerDay("day", most)},
		{ratelimit.PerHour("hour", 10*most), ratelimit.PerDay("day", most)}} {
		var admitted, refused, got atomic.Int64
		l := newLimiter(t, &mapStore{now: newClock().now}, limits...).
			WithObserver(func(_ context.Context, o ratelimit.Observation) {
				if o.Admitted {
					admitted.Add(1)
				} else {
					refused.Add(1)
				}
			})
		var wg sync.WaitGroup
		for range goroutines {
			wg.Go(func() {
				for range calls {
					if res, err := l.Allow(t.Context(), "k"); err == nil && res.Allowed {
						got.Add(1)
					}
				}
			})
		}
		wg.Wait()
		if admitted.Load() != most || got.Load() != most ||
			refused.Load() != goroutines*calls-most {
			t.Errorf("%d limits: observed %d admitted and %d refused, callers got %d",
				len(limits), admitted.Load(), refused.Load(), got.Load())
		}
	}
}

// breaking is code of a user that panics, or ends its goroutine, the next time that it is called at
// a place.
type breaking struct {
	*mapStore
	goexit bool

	mu    sync.Mutex
	place string // or "" if it does not panic
	open  int    // holds, as the observer counts them
}

// nextCaller is in the context of the call that waits for the one that breaks.
type nextCaller struct{}

func (b *breaking) at(ctx context.Context, place string) {
	if ctx.Value(nextCaller{}) != nil {
		return
	}
	b.mu.Lock()
	breaks := b.place == place
	if breaks {
		b.place = ""
	}
	b.mu.Unlock()
	switch {
	case breaks && b.goexit:
		runtime.Goexit()
	case breaks:
		panic("planted")
	}
}

func (b *breaking) Take(ctx context.Context, d driver.Demand) (ratelimit.Result, error) {
	b.at(ctx, "before the store decides")
	res, err := b.mapStore.Take(ctx, d)
	b.at(ctx, "after the store has decided")
	return res, err
}

func (b *breaking) TakeAll(ctx context.Context, ds []driver.Demand, out []ratelimit.Result) error {
	b.at(ctx, "before the store decides")
	err := b.mapStore.TakeAll(ctx, ds, out)
	b.at(ctx, "after the store has decided")
	return err
}

func (b *breaking) observe(ctx context.Context, o ratelimit.Observation) {
	b.mu.Lock()
	for _, change := range o.Open {
		b.open += change
	}
	b.mu.Unlock()
	if o.Open != nil {
		b.at(ctx, "observer of a hold")
	}
	b.at(ctx, "observer")
}

// breaks runs do, which has to break.
func (b *breaking) breaks(t *testing.T, place string, do func()) {
	t.Helper()
	b.mu.Lock()
	b.place = place
	b.mu.Unlock()
	returned := false
	var wg sync.WaitGroup
	wg.Go(func() {
		defer func() { _ = recover() }()
		do()
		returned = true
	})
	wg.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	if returned || b.place != "" {
		t.Errorf("it did not break: %s", place)
	}
}

// TestPanicOfOneObserver: the observers of all limiters see a call and the changes of its holds,
// although one panics.
func TestPanicOfOneObserver(t *testing.T) {
	for breaks := range 3 {
		b := &breaking{mapStore: new(mapStore)}
		var claims []ratelimit.Claim
		seen, held := make([]int, 3), make([]int, 3)
		for i := range 3 {
			limiter := newBudgets(t, b, ratelimit.PerHour(fmt.Sprint("tokens", i), 100)).
				WithObserver(func(ctx context.Context, o ratelimit.Observation) {
					seen[i]++
					for _, change := range o.Open {
						held[i] += change
					}
					if i == breaks {
						b.at(ctx, "observer")
					}
				})
			claims = append(claims, claim(limiter, 1))
		}
		b.breaks(t, "observer", func() { _, _ = ratelimit.ReserveAll(t.Context(), claims...) })
		for i := range 3 { // the reservation is canceled
			if seen[i] != 2 || held[i] != 0 {
				t.Errorf("observer %d has seen %d calls and %d holds, want 2 and 0",
					i, seen[i], held[i])
			}
		}
		r := mustReserve(t, claims...)
		b.breaks(t, "observer", func() { _, _ = r.Token() })
		for i := range 3 {
			if seen[i] != 4 || held[i] != 0 {
				t.Errorf("after Token observer %d has seen %d calls and %d holds, want 4 and 0",
					i, seen[i], held[i])
			}
		}
		noErr(t, r.Cancel(t.Context()))
	}
}

// TestPanic: after a panic of an observer or of the store, or the end of a goroutine there, in any
// method, no queue is left, nothing is counted as held, each open hold of the observer has ended,
// and others get the units: at once if the reservation was to be made or has ended, and otherwise
// when it is canceled, or its time-out is over.
func TestPanic(t *testing.T) {
	ctx := context.Background()
	type method struct {
		name string
		// do calls the method. r is a reservation of 10 tokens and the only call, or nil if the
		// method makes one.
		do   func(r *ratelimit.Reservation, claims []ratelimit.Claim)
		used int64 // tokens, if an observer breaks, also after the method is repeated
	}
	makes := []method{
		{"Reserve", func(_ *ratelimit.Reservation, claims []ratelimit.Claim) {
			_, _ = ratelimit.ReserveAll(ctx, claims...)
		}, 0},
		{"Acquire", func(_ *ratelimit.Reservation, claims []ratelimit.Claim) {
			_, _ = ratelimit.AcquireAll(ctx, claims...)
		}, 0},
	}
	has := []method{
		{"Commit", func(r *ratelimit.Reservation, _ []ratelimit.Claim) {
			_ = r.Commit(ctx, 7)
		}, 7},
		{"Cancel", func(r *ratelimit.Reservation, _ []ratelimit.Claim) { _ = r.Cancel(ctx) }, 0},
		{"Extend", func(r *ratelimit.Reservation, _ []ratelimit.Claim) {
			_, _ = r.Extend(ctx, 5)
		}, 0},
		{"Renew", func(r *ratelimit.Reservation, _ []ratelimit.Claim) { _ = r.Renew(ctx, 0) }, 0},
		{"Reset", func(_ *ratelimit.Reservation, claims []ratelimit.Claim) {
			for _, c := range claims {
				_ = c.Limiter.Reset(ctx, c.Key)
			}
		}, 0},
	}
	for _, place := range []string{"observer", "observer of a hold", "before the store decides",
		"after the store has decided"} {
		for _, goexit := range []bool{false, true} {
			for i, m := range append(makes, has...) {
				made := i >= len(makes)
				if place == "observer of a hold" &&
					slices.Contains([]string{"Reset", "Extend", "Renew"}, m.name) {
					continue // no hold opens or ends
				}
				name := fmt.Sprintf("%s, %s, goexit %t", m.name, place, goexit)
				t.Run(name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						b := &breaking{mapStore: new(mapStore), goexit: goexit}
						calls := newCalls(t, b, 1).WithObserver(b.observe)
						tokens := newBudgets(t, b, ratelimit.PerHour("tokens", 100)).
							WithObserver(b.observe)
						claims := []ratelimit.Claim{claim(calls, 1), claim(tokens, 10)}
						var r *ratelimit.Reservation
						if made {
							r = mustReserve(t, claims...)
						}
						var wg sync.WaitGroup
						var next *ratelimit.Reservation
						wait := func() {
							wg.Go(func() {
								var err error
								waiting, cancel := context.WithTimeout(
									context.WithValue(ctx, nextCaller{}, true), time.Hour)
								defer cancel()
								next, err = ratelimit.AcquireAll(waiting, claims...)
								noErr(t, err)
							})
							synctest.Wait()
						}
						if made { // else this call would be before m
							wait()
						}
						began := time.Now()
						b.breaks(t, place, func() { m.do(r, claims) })
						if !made {
							wait()
						}
						if made {
							m.do(r, claims)
							_ = r.Cancel(ctx)
						}
						wg.Wait()
						most := 1500 * time.Millisecond
						if place == "after the store has decided" && !made {
							most = 70 * time.Second // nobody knows of the hold
						}
						if waited := time.Since(began); waited > most {
							t.Errorf("the next waited %v, want %v at most", waited, most)
						}
						noErr(t, next.Cancel(ctx))
						time.Sleep(3 * time.Minute)
						synctest.Wait()
						for _, l := range []*ratelimit.Limiter{calls, tokens} {
							wantNoQueue(t, l)
							if held := ratelimit.HeldHere(l); len(held) > 0 {
								t.Errorf("counted as held under %v: %v", l.Limits(), held)
							}
						}
						if b.open != 0 {
							t.Errorf("%d holds are open at the end", b.open)
						}
						res, err := tokens.Peek(ctx, "k")
						if noErr(t, err); res.Remaining != 100-m.used {
							t.Errorf("%d tokens are left, want %d", res.Remaining, 100-m.used)
						}
					})
				})
			}
		}
	}
}

// TestPanicThenToken: a reservation whose Token breaks is as before.
func TestPanicThenToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &breaking{mapStore: new(mapStore)}
		tokens := newBudgets(t, b, ratelimit.PerHour("tokens", 100)).
			WithObserver(b.observe)
		r := mustReserve(t, claim(tokens, 10))
		b.breaks(t, "observer of a hold", func() { _, _ = r.Token() })
		time.Sleep(5 * time.Minute)
		noErr(t, r.Commit(t.Context(), 7))
		if b.open != 0 {
			t.Errorf("%d holds are open at the end", b.open)
		}
	})
}

// TestPanicOfCommit: a Commit that breaks may have recorded units, so a repeated one does not say
// that nothing is recorded. Where the policy has admitted the reservation, it is not repeated.
func TestPanicOfCommit(t *testing.T) {
	for _, unheld := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := &breaking{mapStore: new(mapStore)}
			tokens := newBudgets(t, b, ratelimit.PerHour("tokens", 100)).
				WithPolicy(ratelimit.FailOpen)
			if unheld {
				b.fail(ratelimit.ErrUnavailable)
			}
			r := mustReserve(t, claim(tokens, 10))
			b.fail(nil)
			b.breaks(t, "after the store has decided", func() { _ = r.Commit(t.Context(), 7) })
			err := r.Commit(t.Context(), 7)
			if !unheld {
				noErr(t, err)
			} else if !errors.Is(err, ratelimit.ErrNotHeld) {
				t.Errorf("%v, want ErrNotHeld", err)
			}
			res, err := tokens.Peek(t.Context(), "k")
			if noErr(t, err); res.Remaining != 93 {
				t.Errorf("%d tokens are left, want 93", res.Remaining)
			}
		})
	}
}

// TestGoexitInBackground: after an observer or the store has ended the goroutine of a renewal, the
// hold is renewed all the same. After the end of a goroutine that repeats a Cancel, it is repeated
// again.
func TestGoexitInBackground(t *testing.T) {
	for _, place := range []string{"observer", "observer of a hold", "before the store decides",
		"after the store has decided"} {
		for _, cancels := range []bool{false, true} {
			if place == "observer of a hold" && !cancels {
				continue // a renewal changes nothing
			}
			synctest.Test(t, func(t *testing.T) {
				b := &breaking{mapStore: new(mapStore), goexit: true}
				calls := newCalls(t, b, 1).WithObserver(b.observe)
				r := mustReserve(t, claim(calls, 1))
				if cancels {
					b.fail(ratelimit.ErrUnavailable)
					wantErr(t, r.Cancel(t.Context()), ratelimit.ErrUnavailable)
					b.fail(nil)
				}
				b.mu.Lock()
				b.place = place
				b.mu.Unlock()
				time.Sleep(25 * time.Second)
				synctest.Wait()
				if b.place != "" {
					t.Fatalf("it did not end: %s", place)
				}
				res, err := calls.Peek(t.Context(), "k")
				if noErr(t, err); cancels != res.Allowed {
					t.Errorf("canceled %t, and the call is free %t", cancels, res.Allowed)
				}
				time.Sleep(5 * time.Minute)
				res, err = calls.Peek(t.Context(), "k")
				if noErr(t, err); cancels != res.Allowed {
					t.Errorf("later: canceled %t, and the call is free %t", cancels, res.Allowed)
				}
				noErr(t, r.Cancel(t.Context()))
				synctest.Wait()
				if held := ratelimit.HeldHere(calls); len(held) > 0 || b.open != 0 {
					t.Errorf("at the end held %v, open %d", held, b.open)
				}
			})
		}
	}
}

// brokenContext is a context that panics at the n-th use, and ends when n is 0.
type brokenContext struct {
	context.Context
	n *int
}

func (c brokenContext) use() {
	if *c.n--; *c.n == 0 {
		panic("planted")
	}
}

func (c brokenContext) Done() <-chan struct{} { c.use(); return c.Context.Done() }
func (c brokenContext) Err() error            { c.use(); return c.Context.Err() }

// TestPanicOfContext: a call whose context panics, at any of its uses, leaves the queue.
func TestPanicOfContext(t *testing.T) {
	panics := 0
	for n := 1; n < 20; n++ {
		synctest.Test(t, func(t *testing.T) {
			limiter := newLimiter(t, &mapStore{}, tenSeconds(1))
			mustAllow(t, limiter, 1)
			w := newWaits(t)
			w.begin(t.Context(), limiter, "a", 1)
			var wg sync.WaitGroup
			wg.Go(func() {
				defer func() {
					if recover() != nil {
						panics++
					}
				}()
				left := n
				_, _ = limiter.Wait(brokenContext{t.Context(), &left}, "k")
			})
			synctest.Wait()
			w.begin(t.Context(), limiter, "b", 1)
			wg.Wait()
			w.wg.Wait()
			wantNoQueue(t, limiter)
		})
	}
	if panics < 4 {
		t.Errorf("%d panics", panics)
	}
}
