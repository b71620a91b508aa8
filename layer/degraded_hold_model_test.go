package layer_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/layer"
)

// partition is the way of one process to the store. It may be cut off, and lose answers. An answer
// to a Force is not lost: whether to send that again nobody can know.
type partition struct {
	driver.Store
	r      *rand.Rand // of one process; guarded by mu
	mu     sync.Mutex
	cut    atomic.Bool
	losing atomic.Bool
}

// arrives waits for a while, and reports whether a call arrives in the store, and its answer here.
func (p *partition) arrives() (call, answer bool) {
	p.mu.Lock()
	wait, answer := time.Duration(p.r.IntN(20))*time.Millisecond, p.r.IntN(3) > 0
	p.mu.Unlock()
	time.Sleep(wait)
	return !p.cut.Load(), answer || !p.losing.Load()
}

func (p *partition) Take(ctx context.Context, d driver.Demand) (res driver.Result, err error) {
	call, answer := p.arrives()
	if !call {
		return res, driver.ErrUnavailable
	}
	if res, err = p.Store.Take(ctx, d); !answer && d.Op != driver.OpForce {
		return driver.Result{}, driver.ErrOutcomeUnknown
	}
	return res, err
}

func (p *partition) TakeAll(ctx context.Context, ds []driver.Demand, out []driver.Result) error {
	call, answer := p.arrives()
	if !call {
		return driver.ErrUnavailable
	}
	if err := p.Store.TakeAll(ctx, ds, out); err != nil || answer {
		return err
	}
	return driver.ErrOutcomeUnknown
}

// TestDegradedHoldModel makes reservations, some of parts, in three processes, which are cut off
// from the store and lose answers, each at times of its own. The calls in flight and the units of a
// window stay below the bound, and at the end the store has what was committed, each once.
func TestDegradedHoldModel(t *testing.T) {
	local := 0
	var parts atomic.Int64
	for seed := range uint64(8) {
		synctest.Test(t, func(t *testing.T) {
			const processes, most, limit, window = 3, 9, 60, time.Minute
			store := newOutage(t)
			algorithms := []driver.Algorithm{
				algorithm.Budget(algorithm.SlidingLog(driver.Limit{Name: "tokens", Max: limit,
					Window: window})).WithTimeout(10 * time.Minute),
				algorithm.InFlight("calls", most).WithTimeout(10 * time.Minute),
				algorithm.Budget(algorithm.FixedWindow(driver.Limit{Name: "all",
					Max: 1 << 30, Window: 24 * time.Hour})),
			}
			limiters := func(s driver.Store) (ls [3]*ratelimit.Limiter) {
				for i, a := range algorithms {
					l, err := ratelimit.New(s, a)
					if err != nil {
						t.Fatal(err)
					}
					ls[i] = l
				}
				return ls
			}
			type call struct {
				at time.Time
				n  int64
			}
			var mu sync.Mutex
			var calls []call // what was used, at the time of its hold
			var used int64
			inFlight, mostInFlight := 0, 0
			var layers []*layer.Degraded
			var wg sync.WaitGroup
			end := time.Now().Add(5 * time.Minute)
			for i := range processes {
				way := &partition{Store: store.Store, r: rand.New(rand.NewPCG(seed, uint64(i)))}
				s := newDegraded(t, way, &layer.DegradedOptions{Instances: processes})
				layers = append(layers, s)
				ls := limiters(s)
				wg.Go(func() {
					r := rand.New(rand.NewPCG(seed, uint64(100+i)))
					for time.Now().Before(end) {
						time.Sleep(time.Duration(1+r.IntN(3000)) * time.Millisecond)
						way.cut.Store(r.IntN(3) == 0)
						way.losing.Store(r.IntN(3) == 0)
					}
					way.cut.Store(false)
					way.losing.Store(false)
				})
				for worker := range 4 {
					r := rand.New(rand.NewPCG(seed, uint64(10*i+worker)))
					wg.Go(func() {
						for time.Now().Before(end) {
							time.Sleep(time.Duration(r.IntN(2000)) * time.Millisecond)
							n, least := 1+r.Int64N(10), int64(0)
							if r.IntN(2) == 0 {
								n, least = n+r.Int64N(30), n
							}
							began := time.Now()
							res, err := ratelimit.ReserveAll(t.Context(),
								ratelimit.Claim{Limiter: ls[0], Key: "k", N: n, Least: least},
								ratelimit.Claim{Limiter: ls[1], Key: "k", N: 1},
								ratelimit.Claim{Limiter: ls[2], Key: "k", N: n, Least: least})
							if err != nil || !res.Allowed() {
								continue
							}
							if res.Claims()[0].N < n {
								parts.Add(1)
							}
							n = res.Claims()[0].N
							mu.Lock()
							inFlight++
							mostInFlight = max(mostInFlight, inFlight)
							if res.Result().Source == driver.SourceLocal {
								local++
							}
							mu.Unlock()
							time.Sleep(time.Duration(r.IntN(5000)) * time.Millisecond)
							if more := r.Int64N(4); more > 0 {
								extended, err := res.ExtendAll(t.Context(),
									ratelimit.Claim{Limiter: ls[0], N: more},
									ratelimit.Claim{Limiter: ls[2], N: more})
								if err == nil && extended[ratelimit.Binding(extended)].Allowed {
									// Units that are added later count from then on.
									n += more
									began = time.Now()
								}
								time.Sleep(time.Duration(r.IntN(500)) * time.Millisecond)
							}
							n = r.Int64N(n + 1)
							for {
								mu.Lock()
								inFlight--
								mu.Unlock()
								err := res.CommitAll(t.Context(),
									ratelimit.Claim{Limiter: ls[0], N: n},
									ratelimit.Claim{Limiter: ls[2], N: n})
								if err == nil {
									break
								}
								mu.Lock()
								inFlight++
								mu.Unlock()
								if errors.Is(err, ratelimit.ErrNotHeld) {
									t.Errorf("seed %d: %v", seed, err)
									return
								}
								time.Sleep(time.Second)
							}
							mu.Lock()
							calls, used = append(calls, call{began, n}), used+n
							mu.Unlock()
						}
					})
				}
			}
			wg.Wait()
			time.Sleep(2 * time.Second)
			for _, s := range layers {
				if st := s.Stats(); st.Holds != 0 || st.Pending != 0 || st.Lost != 0 {
					t.Errorf("seed %d: %+v", seed, st)
				}
			}
			for i, l := range limiters(store.Store) {
				want := l.Max()
				if i == 2 {
					want -= used
				} else {
					time.Sleep(window)
				}
				if res, err := l.Peek(t.Context(), "k"); err != nil || res.Remaining != want {
					t.Errorf("seed %d: %+v, %v; want %d left", seed, res, err, want)
				}
			}
			if most := most + processes*(most/processes); mostInFlight > most {
				t.Errorf("seed %d: %d calls in flight, want %d at most", seed, mostInFlight, most)
			}
			for _, last := range calls {
				n := int64(0)
				for _, c := range calls {
					if !c.at.After(last.at) && c.at.After(last.at.Add(-window)) {
						n += c.n
					}
				}
				if bound := int64(limit + processes*(limit/processes)); n > bound {
					t.Errorf("seed %d: %d units in a window, want %d at most", seed, n, bound)
				}
			}
		})
	}
	if local < 100 || parts.Load() < 100 {
		t.Errorf("only %d local reservations, and %d of parts", local, parts.Load())
	}
}
