//go:build !race

package layer_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
	"github.com/truewindow/ratelimit/internal/testkit/uses"
	"github.com/truewindow/ratelimit/layer"
)

// leaseWindow is the Window in worlds.
const leaseWindow = time.Second

// A leaseKind is an algorithm with leases, and what its limit says of uses.
type leaseKind struct {
	of      func(driver.Limit) driver.Ahead
	excess  uses.Excess
	stepsBy time.Duration // the server's clock is set back by less, once
}

var leaseKinds = map[string]leaseKind{
	"log": {func(l driver.Limit) driver.Ahead { return algorithm.SlidingLog(l) },
		uses.OverWindow, leaseWindow},
	"log with resolution": {func(l driver.Limit) driver.Ahead {
		return algorithm.SlidingLog(l).WithResolution(leaseWindow / 50)
	}, uses.OverWindow, leaseWindow},
	"budget of log": {func(l driver.Limit) driver.Ahead {
		return algorithm.Budget(algorithm.SlidingLog(l))
	}, uses.OverWindow, leaseWindow},
	"bucket": {func(l driver.Limit) driver.Ahead { return algorithm.GCRA(l) },
		uses.OverBucket, leaseWindow / 3},
	"fixed": {func(l driver.Limit) driver.Ahead { return algorithm.FixedWindow(l) },
		uses.OverFixed, 0},
}

// A leaseWorld is processes with leases of one key, and one without, on one server.
type leaseWorld struct {
	leaseKind
	t      *testing.T
	seed   uint64
	server *memorystore.Store
	hot    driver.Ahead
	beside driver.Algorithm // in a TakeAll with hot, and without leases
	lead   time.Duration
	risk   float64
	most   int64 // units of a demand
	right  bool  // clocks are right
	alone  bool  // one process, which resets the key

	back atomic.Int64 // by which the server's clock is behind, in ns

	mu       sync.Mutex
	resetAt  int64      // last reset
	used     []uses.Use // of hot
	usedToo  []uses.Use // of beside
	refused  []uses.Use
	unknown  []uses.Use
	chunks   []time.Time // when units were taken ahead
	leased   int         // decisions from leases
	together int         // of these in a TakeAll
	local    bool        // another store decides meanwhile, from its memory
}

func (w *leaseWorld) micros() int64 { return time.Now().UnixMicro() }

// A leaseWay is the way of a process to the server.
type leaseWay struct {
	w *leaseWorld
	r *rand.Rand
}

type servedAt struct{}

// serve makes a call of the server, and tells the caller when it was decided.
func (p *leaseWay) serve(
	ctx context.Context, ds []driver.Demand, out []driver.Result, call func() error,
) error {
	w := p.w
	w.mu.Lock()
	there, back := p.delay(), p.delay()
	lost := p.r.IntN(30) == 0 && ds[0].Op != driver.OpReset
	arrives := !lost || p.r.IntN(2) == 0
	w.mu.Unlock()
	time.Sleep(there)
	w.mu.Lock()
	if w.local {
		w.mu.Unlock()
		for i, d := range ds {
			out[i] = driver.Result{Allowed: true, Source: driver.SourceLocal,
				Limit: d.Algorithm.Limit(), ResetAfter: leaseWindow,
				Units: driver.Taken(d.Op, d.N, true)}
		}
		return nil
	}
	w.mu.Unlock()
	if !arrives {
		return driver.ErrOutcomeUnknown
	}
	err := call()
	w.mu.Lock()
	if at, ok := ctx.Value(servedAt{}).(*int64); ok {
		*at = w.micros()
	}
	if len(ds) == 1 && ds[0].Least > 0 && out[0].Allowed {
		w.chunks = append(w.chunks, time.Now())
	}
	if ds[0].Op == driver.OpReset { // what was used before counts no more
		w.used, w.resetAt = nil, w.micros()
	}
	w.mu.Unlock()
	time.Sleep(back)
	if err == nil && lost {
		return driver.ErrOutcomeUnknown
	}
	return err
}

func (p *leaseWay) delay() time.Duration {
	most := leaseWindow / 200
	if p.r.IntN(10) == 0 {
		most = p.w.lead
	}
	return time.Duration(p.r.Int64N(int64(most)))
}

func (p *leaseWay) Take(ctx context.Context, d driver.Demand) (driver.Result, error) {
	var out [1]driver.Result
	err := p.serve(ctx, []driver.Demand{d}, out[:], func() (err error) {
		out[0], err = p.w.server.Take(ctx, d)
		return err
	})
	return out[0], err
}

func (p *leaseWay) TakeAll(
	ctx context.Context, ds []driver.Demand, out []driver.Result,
) error {
	return p.serve(ctx, ds, out, func() error { return p.w.server.TakeAll(ctx, ds, out) })
}

// clock returns the clocks of a process: they run up to 8 % wrong, the monotonic one stands still
// for a while, and the wall clock is set back at another time.
func (w *leaseWorld) clock(r *rand.Rand) (clock func() (monotonic, wall int64), pace float64) {
	start := time.Now()
	if w.right {
		return func() (int64, int64) {
			passed := int64(time.Since(start))
			return passed, passed
		}, 1
	}
	pace = .92 + .16*r.Float64()
	stands := leaseWindow + time.Duration(r.Int64N(int64(leaseWindow)))
	setBack := 3*leaseWindow + time.Duration(r.Int64N(int64(leaseWindow)))
	if r.IntN(2) == 0 {
		stands, setBack = setBack, stands
	}
	by := leaseWindow/4 + time.Duration(r.Int64N(int64(leaseWindow)))
	return func() (monotonic, wall int64) {
		passed := time.Since(start)
		mono, wallTime := passed, passed
		if passed > stands {
			mono = max(stands, passed-by/2)
		}
		if passed > setBack {
			wallTime -= by
		}
		return int64(pace * float64(mono)), int64(pace * float64(wallTime))
	}, pace
}

// take has a process make a demand, and notes what was used.
func (w *leaseWorld) take(s *layer.Leased, r *rand.Rand, n int64) {
	var served int64
	ctx := context.WithValue(context.Background(), servedAt{}, &served)
	began := w.micros()
	ds := []driver.Demand{{Key: "k", Algorithm: w.hot, N: n}}
	if r.IntN(6) == 0 {
		ds = append(ds, driver.Demand{Key: "k", Algorithm: w.beside, N: 1})
		if r.IntN(2) == 0 {
			slices.Reverse(ds)
		}
	}
	out := make([]driver.Result, len(ds))
	var err error
	if len(ds) == 1 {
		out[0], err = s.Take(ctx, ds[0])
	} else {
		err = s.TakeAll(ctx, ds, out)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if errors.Is(err, driver.ErrOutcomeUnknown) {
		w.unknown = append(w.unknown, uses.Use{At: began, Units: n})
	}
	if err != nil {
		return
	}
	admitted := !slices.ContainsFunc(out, func(res driver.Result) bool { return !res.Allowed })
	for i, res := range out {
		hot := ds[i].Algorithm == driver.Algorithm(w.hot)
		at := served
		switch res.Source {
		case driver.SourceLease:
			at = began
			w.leased++
			if len(ds) > 1 {
				w.together++
			}
		case driver.SourceLocal:
			continue
		}
		if admitted && res.Units != ds[i].N || !admitted && res.Units != 0 {
			w.t.Errorf("world %d: %d units of %+v are taken: %+v", w.seed, ds[i].N, ds[i], out)
		}
		switch {
		case !hot && admitted:
			w.usedToo = append(w.usedToo, uses.Use{At: at, Units: 1})
		case hot && admitted && at > w.resetAt:
			w.used = append(w.used, uses.Use{At: at, Units: n})
		case hot && !res.Allowed:
			w.refused = append(w.refused, uses.Use{At: at, Units: n})
		}
	}
}

// process runs a process until end, or until it is killed.
func (w *leaseWorld) process(r *rand.Rand, end time.Time) {
	s, err := layer.NewLeased(&leaseWay{w, rand.New(rand.NewPCG(w.seed, r.Uint64()))}, nil)
	if err != nil {
		w.t.Error(err)
		return
	}
	defer s.Close()
	clock, pace := w.clock(r)
	s.SetClock(clock)
	s.SetTerms(w.hot, w.lead, w.risk)
	if r.IntN(6) == 0 {
		end = time.Now().Add(time.Duration(r.Int64N(int64(time.Until(end)))))
	}
	demand := .5 + 2.5*r.Float64() // of the limit, of each of three processes
	if w.alone {
		demand = 4 + 4*r.Float64()
	}
	units := float64(1+w.most) / 2
	pause := float64(leaseWindow) * 6 * units / float64(w.hot.Limit().Max) / demand
	var running sync.WaitGroup
	for range 2 {
		r := rand.New(rand.NewPCG(w.seed, r.Uint64()))
		running.Go(func() {
			for time.Now().Before(end) {
				time.Sleep(time.Duration(r.Float64() * 2 * pause))
				switch i := r.IntN(200); {
				case i == 0:
					w.take(s, r, 1+r.Int64N(w.hot.Limit().Max)) // of many units
				case i == 1:
					time.Sleep(time.Duration(r.Int64N(int64(leaseWindow) / 2)))
				case i == 2 && w.alone:
					_, _ = s.Take(context.Background(),
						driver.Demand{Key: "k", Algorithm: w.hot, Op: driver.OpReset})
				default:
					w.take(s, r, 1+r.Int64N(w.most))
				}
			}
		})
	}
	running.Go(func() { // uses units just before the end of their lease
		r := rand.New(rand.NewPCG(w.seed, r.Uint64()))
		for time.Now().Before(end) {
			time.Sleep(leaseWindow / 50)
			units, left := s.LeaseOf("k", w.hot)
			if left > 0 && r.IntN(3) == 0 {
				time.Sleep(time.Duration(float64(left)/pace) - 3*time.Microsecond)
				w.take(s, r, units)
			}
		}
	})
	running.Wait()
}

// plain is a process without leases. It takes all that is free, mostly when units that were taken
// ahead might leave the window.
func (w *leaseWorld) plain(r *rand.Rand, end time.Time) {
	for time.Now().Before(end) {
		time.Sleep(time.Duration(r.Int64N(int64(leaseWindow) / 4)))
		w.mu.Lock()
		wait := time.Duration(0)
		if n := len(w.chunks); n > 0 {
			wait = time.Until(w.chunks[n-1-r.IntN(min(n, 40))].Add(leaseWindow))
			if r.IntN(2) == 0 { // when the units leave the window
				wait += w.lead
			}
		}
		w.mu.Unlock()
		time.Sleep(wait + time.Duration(r.IntN(3))*time.Microsecond)
		res, err := w.server.Take(context.Background(), driver.Demand{Key: "k", Algorithm: w.hot,
			N: w.hot.Limit().Max, Least: 1})
		if err != nil {
			w.t.Error(err)
		}
		w.mu.Lock()
		if res.Allowed {
			w.used = append(w.used, uses.Use{At: w.micros(), Units: res.Units})
		}
		w.mu.Unlock()
	}
}

// play plays the world.
func (w *leaseWorld) play() {
	r := rand.New(rand.NewPCG(w.seed, 2))
	start := time.Now()
	server, err := memorystore.New(&memorystore.Options{Now: func() int64 {
		return time.Now().Add(-time.Duration(w.back.Load())).UnixMicro()
	}})
	if err != nil {
		w.t.Fatal(err)
	}
	defer server.Close()
	w.server = server
	end := start.Add(5 * leaseWindow)
	var running sync.WaitGroup
	processes := 3
	if w.alone {
		processes = 1
	}
	for range processes {
		r := rand.New(rand.NewPCG(w.seed, r.Uint64()))
		running.Go(func() { w.process(r, end) })
	}
	if !w.alone && w.risk > 1 {
		running.Go(func() { w.plain(rand.New(rand.NewPCG(w.seed, 3)), end) })
	}
	if w.risk > 1 {
		running.Go(func() {
			r := rand.New(rand.NewPCG(w.seed, 4))
			time.Sleep(time.Duration(r.Int64N(int64(4 * leaseWindow))))
			w.mu.Lock()
			if w.stepsBy > 0 && r.IntN(2) == 0 && !w.alone {
				// Uses are noted in whole microseconds, so the server's clock keeps to them.
				by := time.Duration(r.Int64N(int64(w.stepsBy))).Truncate(time.Microsecond)
				w.back.Store(int64(by))
			}
			w.local = r.IntN(3) == 0
			w.mu.Unlock()
			time.Sleep(time.Duration(r.Int64N(int64(leaseWindow / 4))))
			w.mu.Lock()
			w.local = false
			w.mu.Unlock()
		})
	}
	running.Wait()
	uses.Sort(w.used)
	uses.Sort(w.usedToo)
	uses.Sort(w.unknown)
}

func newLeaseWorld(t *testing.T, k leaseKind, seed uint64) *leaseWorld {
	r := rand.New(rand.NewPCG(seed, 1))
	lead := leaseWindow/20 + time.Duration(r.Int64N(int64(leaseWindow)*2/5))
	return &leaseWorld{leaseKind: k, t: t, seed: seed,
		hot:    k.of(driver.Limit{Name: "hot", Max: 1000, Window: leaseWindow}),
		beside: algorithm.SlidingLog(driver.Limit{Name: "beside", Max: 10, Window: leaseWindow}),
		lead:   lead.Truncate(time.Microsecond),
		risk:   1e6, most: 20, alone: r.IntN(5) == 0}
}

// newCreditWorld returns one in which processes have credit for a part of their use.
func newCreditWorld(t *testing.T, k leaseKind, seed uint64) *leaseWorld {
	w := newLeaseWorld(t, k, seed)
	w.lead, w.risk, w.most, w.alone, w.right = leaseWindow/6, .2, 2, false, true
	return w
}

// TestLeasedHardlyBelow: a demand is refused only if nearly all of Max was used shortly before.
func TestLeasedHardlyBelow(t *testing.T) {
	for _, name := range []string{"log", "budget of log"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			leased := 0
			for seed := range depth.Of[uint64](20, 2000) {
				w := newCreditWorld(t, leaseKinds[name], seed)
				synctest.Test(t, func(t *testing.T) { w.play() })
				leased += w.leased
				if over := w.excess(w.used, 1000, leaseWindow.Microseconds()); over > 0 {
					t.Fatalf("world %d: %d units above the limit", seed, over)
				}
				window, lead := leaseWindow.Microseconds(), w.lead.Microseconds()
				for _, u := range w.refused {
					n := max(u.Units, 4)
					late := sumSince(w.used, u.At-window-2*lead, u.At)
					early := sumSince(w.used, u.At-2*window-3*lead, u.At)
					unknown := sumSince(w.unknown, u.At-window-2*lead, u.At)
					if float64(late+n+unknown)+w.risk*float64(early) <= 1000 {
						t.Fatalf("world %d: %d units are refused, but within a Window only %d "+
							"were used, %d within two", seed, u.Units, late, early)
					}
				}
			}
			t.Logf("%d decisions from leases", leased)
			if leased < 10_000 {
				t.Error("too few decisions from leases")
			}
		})
	}
}

// sumSince returns the units of uses in (from, until].
func sumSince(all []uses.Use, from, until int64) (sum int64) {
	for _, u := range all {
		if u.At > from && u.At <= until {
			sum += u.Units
		}
	}
	return sum
}

// TestLeasedDamage: a process whose clocks stand still exceeds a limit by what it holds ahead,
// which is never more than a part of its own use.
func TestLeasedDamage(t *testing.T) {
	worst := int64(0)
	for seed := range depth.Of[uint64](20, 2000) {
		synctest.Test(t, func(t *testing.T) {
			w := newCreditWorld(t, leaseKinds["log"], seed)
			r := rand.New(rand.NewPCG(seed, 5))
			server, err := memorystore.New(nil)
			if err != nil {
				t.Fatal(err)
			}
			defer server.Close()
			s, err := layer.NewLeased(server, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			start, stands := time.Now(), time.Duration(-1)
			s.SetClock(func() (int64, int64) {
				if stands >= 0 {
					return int64(stands), int64(stands)
				}
				passed := int64(time.Since(start))
				return passed, passed
			})
			s.SetTerms(w.hot, w.lead, w.risk)
			ctx, d := t.Context(), driver.Demand{Key: "k", Algorithm: w.hot, N: 1}
			used := int64(0)
			end := start.Add(leaseWindow + time.Duration(r.Int64N(int64(leaseWindow))))
			for time.Now().Before(end) {
				time.Sleep(time.Duration(r.Int64N(int64(leaseWindow / 400))))
				if res, err := s.Take(ctx, d); err != nil {
					t.Fatal(err)
				} else if res.Allowed && time.Until(end) < leaseWindow {
					used++
				}
				synctest.Wait()
			}
			stands = time.Since(start)
			time.Sleep(leaseWindow + 2*w.lead)
			all := d
			all.N, all.Least = 1000, 1
			if res, err := server.Take(ctx, all); err != nil || res.Units != 1000 {
				t.Fatalf("%+v, %v", res, err)
			}
			over := int64(0)
			for {
				res, err := s.Take(ctx, d)
				if err != nil || !res.Allowed {
					break
				}
				over++
			}
			worst = max(worst, over)
			if float64(over) > w.risk*float64(used) {
				t.Fatalf("world %d: %d units above the limit, after a use of %d", seed, over, used)
			}
		})
	}
	t.Logf("at most %d units of 1000 above", worst)
	if worst == 0 {
		t.Error("the clock made no difference")
	}
}

// TestLeasedNeverAbove: with leases a limit is never exceeded, whatever answers are lost or late,
// whichever processes are killed or have no leases, and whatever one clock of a process does. No
// credit bounds the leases here: they are up to half of the limit.
func TestLeasedNeverAbove(t *testing.T) {
	for name, k := range leaseKinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			leased, together := 0, 0
			for seed := range depth.Of[uint64](40, 4000) {
				w := newLeaseWorld(t, k, seed)
				synctest.Test(t, func(t *testing.T) { w.play() })
				leased, together = leased+w.leased, together+w.together
				if over := k.excess(w.used, 1000, leaseWindow.Microseconds()); over > 0 {
					t.Fatalf("world %d: %d units above the limit", seed, over)
				}
				if over := uses.OverWindow(w.usedToo, 10, leaseWindow.Microseconds()); over > 0 {
					t.Fatalf("world %d: %d units above the limit beside", seed, over)
				}
			}
			t.Logf("%d decisions from leases, %d of them in a TakeAll", leased, together)
			if leased < 1000 || together < 100 {
				t.Error("too few decisions from leases")
			}
		})
	}
}
