package algorithm_test

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/conformance"
	"github.com/truewindow/ratelimit/driver"
)

// inexact has the algorithms that admit more than their limit in a rolling window.
var inexact = map[string]func(driver.Limit) driver.Algorithm{
	"bucket": func(l driver.Limit) driver.Algorithm { return algorithm.GCRA(l) },
	"fixed":  func(l driver.Limit) driver.Algorithm { return algorithm.FixedWindow(l) },
	"counter": func(l driver.Limit) driver.Algorithm {
		return algorithm.SlidingWindowCounter(l)
	},
}

// months makes a limit of calendar months, whatever the Window.
func months(l driver.Limit) driver.Algorithm { return algorithm.Monthly(l.Name, l.Max) }

// inexactOrMonths has these algorithms and calendar months.
func inexactOrMonths() map[string]func(driver.Limit) driver.Algorithm {
	all := maps.Clone(inexact)
	all["months"] = months
	return all
}

// stepper runs an algorithm on a state of its own.
type stepper struct {
	state []byte
	now   int64
}

// stateSize returns the bytes of a state of a.
func stateSize(a driver.Algorithm) int {
	if _, ok := a.(algorithm.Bucket); ok {
		return 40
	}
	return 32
}

// step decides d, and checks what holds for every step: states are small, a step with keep 0
// changes nothing, and numbers are in range.
func (s *stepper) step(t testing.TB, a driver.Algorithm, d driver.Demand) driver.Result {
	t.Helper()
	d.Algorithm = a
	before := bytes.Clone(s.state)
	next, keep, res := d.Step(bytes.Clone(s.state), s.now)
	switch {
	case keep < 0:
		t.Fatalf("%v: a state of the algorithm is corrupt: %x", d.Op, before)
	case len(next) > stateSize(a):
		t.Fatalf("%v: a state of %d bytes", d.Op, len(next))
	case keep > 0:
		s.state = next
	case !bytes.Equal(next, before):
		t.Fatalf("%v: the state has changed although keep is 0: %x, was %x", d.Op, next, before)
	}
	if res.Remaining < 0 || res.Remaining > a.Limit().Max || res.RetryAfter < 0 ||
		res.ResetAfter < 0 || res.Allowed != (res.RetryAfter == 0) || keep > 0 && len(next) > 0 &&
		keep < res.ResetAfter {
		t.Fatalf("%v: %+v, keep %v", d.Op, res, keep)
	}
	return res
}

func (s *stepper) take(t testing.TB, a driver.Algorithm, n int64) driver.Result {
	t.Helper()
	return s.step(t, a, driver.Demand{N: n})
}

// wantExactRetry checks that n units, which were refused with res, are admitted after its
// RetryAfter, and not one microsecond sooner.
func (s stepper) wantExactRetry(
	t testing.TB, a driver.Algorithm, n int64, res driver.Result,
) {
	t.Helper()
	peek := driver.Demand{Op: driver.OpPeek, N: n}
	s.now += res.RetryAfter.Microseconds()
	sooner := s // a peek may change the state
	sooner.now--
	if !s.step(t, a, peek).Allowed {
		t.Fatalf("refused after RetryAfter of %v", res.RetryAfter)
	}
	if sooner.step(t, a, peek).Allowed {
		t.Fatalf("admitted before RetryAfter of %v", res.RetryAfter)
	}
}

// TestInexactRetryAfter: RetryAfter is exact whatever the history, with limits that change and a
// clock that steps.
func TestInexactRetryAfter(t *testing.T) {
	for name, newAlgorithm := range inexact {
		random := rand.New(rand.NewPCG(1, 2))
		refusals := 0
		for range 300 {
			s, forced := &stepper{now: 1e15}, int64(0)
			for range 100 {
				window := time.Duration(1+random.Int64N(50)) * time.Second
				a := newAlgorithm(driver.Limit{Name: name, Max: 1 + random.Int64N(9),
					Window: window})
				s.now += random.Int64N(40_000_000) - 10_000_000
				d := driver.Demand{N: 1 + random.Int64N(a.Limit().Max)}
				if random.IntN(6) == 0 {
					d.Op, forced = driver.OpForce, forced+d.N
				}
				res := s.step(t, a, d)
				if res.Remaining == a.Limit().Max {
					forced = 0
				}
				if res.Allowed {
					continue
				}
				refusals++
				s.wantExactRetry(t, a, d.N, res)
				most := 3 * 50 * time.Second
				if name == "bucket" { // units taken under another Max come back at this rate
					most = 2*window + time.Duration(9+forced)*window/time.Duration(a.Limit().Max)
				}
				if res.RetryAfter > most {
					t.Fatalf("%s: RetryAfter %v under %v", name, res.RetryAfter, a.Limit())
				}
			}
		}
		if refusals < 1000 {
			t.Errorf("%s: only %d refusals", name, refusals)
		}
	}
}

// TestInexactWorst: a rolling window can admit twice Max, and never more.
func TestInexactWorst(t *testing.T) {
	const limit = 10
	for name, newAlgorithm := range inexact {
		a := newAlgorithm(driver.PerSecond(name, limit))
		random := rand.New(rand.NewPCG(3, 4))
		s := &stepper{now: 1e15}
		var admitted []int64
		for range 20_000 {
			switch random.IntN(10) {
			case 0: // to the end of a window
				s.now += 999_999 - s.now%1_000_000
			case 1: // until nothing counts, and to the end of a window
				s.now += 3_000_000 - 1 - s.now%1_000_000
			}
			for range random.IntN(15) {
				if s.take(t, a, 1).Allowed {
					admitted = append(admitted, s.now)
				}
			}
			s.now += random.Int64N(300_000)
		}
		if most := fullest(admitted, 1_000_000); most < 2*limit-1 || most > 2*limit {
			t.Errorf("%s: the fullest window holds %d, want %d", name, most, 2*limit)
		}
	}
}

// fullest returns the most of the times, which are sorted, in one rolling window.
func fullest(times []int64, window int64) (most int) {
	for first, last := 0, 0; last < len(times); last++ {
		for times[last]-times[first] >= window {
			first++
		}
		most = max(most, last-first+1)
	}
	return most
}

// FuzzInexact: whatever the state, a step does not panic, returns numbers in range, and accepts the
// state that it has written.
func FuzzInexact(f *testing.F) {
	for _, size := range []int{32, 40} {
		f.Add(make([]byte, size), int64(1e15), int64(5), int64(0), uint8(0), int64(60), int64(3))
	}
	for name, newAlgorithm := range inexactOrMonths() {
		s := &stepper{now: 1e15}
		s.take(f, newAlgorithm(driver.PerMinute(name, 7)), 2)
		f.Add(s.state, int64(1e15), int64(5), int64(1e15), uint8(3), int64(60), int64(3))
	}
	f.Fuzz(func(t *testing.T, state []byte, now, n, at int64, op uint8, window, most int64) {
		now = max(0, now) % (1 << 52)
		limit := driver.Limit{Name: "f", Max: 1 + max(0, most)%driver.MaxUnits,
			Window: driver.MinWindow + time.Duration(max(0, window)%
				int64(driver.MaxWindow-driver.MinWindow))}
		all := inexactOrMonths()
		all["bucket with a debt"] = func(l driver.Limit) driver.Algorithm {
			debt := time.Duration(max(0, at)).Truncate(time.Microsecond)
			return algorithm.GCRA(l).WithDebt(min(l.Window+debt, 1<<50*time.Microsecond))
		}
		for _, newAlgorithm := range all {
			d := driver.Demand{Algorithm: newAlgorithm(limit), Op: driver.Op(op % 4),
				N: 1 + max(0, n)%limit.Max, At: at}
			if _, keep, _ := d.Step(bytes.Clone(state), now); keep < 0 {
				continue
			}
			s := &stepper{state: bytes.Clone(state), now: now}
			res := s.step(t, d.Algorithm, d)
			if !res.Allowed {
				s.wantExactRetry(t, d.Algorithm, d.N, res)
			}
			d.Op = driver.OpPeek
			res = s.step(t, d.Algorithm, d)
			b, ok := d.Algorithm.(algorithm.Bucket)
			if ok && b.Debt() < 1<<50*time.Microsecond &&
				res.ResetAfter > max(b.Debt(), driver.MaxWindow)+limit.Window {
				t.Fatalf("%v: %+v", b, res)
			}
		}
	})
}

// TestInexactOnMemory runs the conformance suite.
func TestInexactOnMemory(t *testing.T) {
	runSuite(t, slices.Collect(maps.Values(inexact)), map[string]string{
		"window/rolling":          "they let two Max into one rolling Window",
		"clock/back-up-to-window": "it looks into a rolling Window",
	})
}

// runSuite runs the conformance suite with algorithms beside the log on the memory store.
func runSuite(
	t *testing.T, algorithms []func(driver.Limit) driver.Algorithm, except map[string]string,
) {
	t.Parallel() // some cases wait
	log := func(l driver.Limit) driver.Algorithm { return algorithm.SlidingLog(l) }
	conformance.Run(t, func(t testing.TB, now func() int64) conformance.Harness {
		store, err := memorystore.New(&memorystore.Options{Now: now})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { store.Close() })
		return conformance.Harness{Store: store}
	}, &conformance.Options{
		Algorithms: slices.Insert(algorithms, 0, log),
		Except:     except,
	})
}

func BenchmarkInexact(b *testing.B) {
	for name, newAlgorithm := range inexactOrMonths() {
		b.Run(name, func(b *testing.B) {
			d := driver.Demand{N: 1, Algorithm: newAlgorithm(driver.PerSecond(name, 1000))}
			var state []byte
			now := int64(1e15)
			b.ReportAllocs()
			for b.Loop() {
				now += 100
				if next, keep, _ := d.Step(state, now); keep > 0 {
					state = next
				}
			}
		})
	}
}
