package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const manyKeys = 100_000

// inProcess measures the time and the allocations of a decision.
func inProcess(quick bool) subject {
	duration := 250 * time.Millisecond
	if quick {
		duration = 60 * time.Millisecond
	}
	s := subject{
		name: "inprocess", title: "In process", reference: xTime,
		metrics: []metric{
			{"time", "ns per decision",
				"Wall time ÷ decisions of all goroutines, one per CPU.", false},
			{"allocations", "per decision",
				"With 100k keys this includes growing histories.", true},
			{"admitted", "share of the decisions",
				"If nothing should be refused, an entry below 1 does not refill as its limit " +
					"requires.", true},
		},
	}
	hot := make([]string, 1)
	many := make([]string, manyKeys)
	for i := range many {
		many[i] = keyName(i)
	}
	hot[0] = many[0]
	for _, cpus := range []int{1, 2} {
		if cpus > runtime.NumCPU() {
			break
		}
		hotOnly, manyOnly := quick && cpus == 1, quick && cpus == 2
		for _, w := range []workload{
			{name: "hot admitted", quota: quota{100_000, time.Millisecond}, keys: hot, warm: 100},
			{name: "hot refused", quota: quota{10, time.Hour}, keys: hot, warm: 20},
			{name: "hot, 10000 units", quota: quota{1_000_000_000, time.Millisecond}, keys: hot,
				units: 10_000, warm: 100},
			{name: "100k uniform", quota: quota{100, 10 * time.Second}, keys: many,
				order: uniform(manyKeys), warm: 5},
			{name: "100k zipf", quota: quota{100, 10 * time.Second}, keys: many,
				order: zipf(manyKeys), warm: 5},
		} {
			if hotOnly && w.order != nil || manyOnly && w.order == nil || cpus > 1 && w.units > 1 {
				continue
			}
			entries := memoryNames()
			if w.units > 1 {
				// the first has no demands of several units, the second no limit as high
				entries = memoryNames(goLimiter, throttledName)
			}
			plural := ""
			if cpus > 1 {
				plural = "s"
			}
			s.cases = append(s.cases, testCase{
				name: fmt.Sprintf("%s, %d CPU%s", w.name, cpus, plural), entries: entries,
				measure: func(ctx context.Context, entry string) ([]float64, error) {
					d, err := openMemoryEntry(entry, w.quota)
					if err != nil {
						return nil, err
					}
					defer d.close()
					r, err := w.measure(ctx, d, cpus, duration)
					return []float64{r.nanoseconds(), r.mallocs, r.admittedShare()}, err
				},
			})
		}
	}
	return s
}

// A workload is a sequence of decisions.
type workload struct {
	name  string
	quota quota
	keys  []string
	order []uint32 // indices of keys, used cyclically; nil means the first key only
	units int64    // of each demand; 0 means one, by the shortest call
	warm  int      // decisions of every key before the measurement
}

const orderLen = 1 << 20

func uniform(keys int) []uint32 {
	random := rand.New(rand.NewPCG(1, 2))
	order := make([]uint32, orderLen)
	for i := range order {
		order[i] = random.Uint32N(uint32(keys))
	}
	return order
}

// zipf draws key k about as often as 1/k^1.1, like the visitors of a site.
func zipf(keys int) []uint32 {
	z := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 1, uint64(keys-1))
	order := make([]uint32, orderLen)
	for i := range order {
		order[i] = uint32(z.Uint64())
	}
	return order
}

func keyName(i int) string { return "user:" + strconv.Itoa(1_000_000+i) }

// measure warms d up and measures its decisions.
func (w *workload) measure(
	ctx context.Context, d decider, cpus int, duration time.Duration,
) (rush, error) {
	if w.units > 0 {
		d.allow = func(ctx context.Context, key string) (bool, error) {
			return d.allowN(ctx, key, w.units)
		}
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(cpus))
	for range w.warm {
		for _, key := range w.keys {
			if _, err := d.allow(ctx, key); err != nil {
				return rush{}, err
			}
		}
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r, err := w.decide(ctx, d, cpus, duration)
	if err != nil {
		return rush{}, err
	}
	runtime.ReadMemStats(&after)
	r.mallocs = round2(float64(after.Mallocs-before.Mallocs) / r.decisions)
	r.bytes = round2(float64(after.TotalAlloc-before.TotalAlloc) / r.decisions)
	return r, nil
}

// A rush is the result of decisions made as fast as possible.
type rush struct {
	decisions, admitted float64
	took                time.Duration
	mallocs, bytes      float64 // allocated per decision, if measured
}

func (r rush) nanoseconds() float64 { return float64(r.took.Nanoseconds()) / r.decisions }

func (r rush) admittedShare() float64 { return r.admitted / r.decisions }

// decide makes decisions for the duration, in one goroutine per CPU.
func (w *workload) decide(
	ctx context.Context, d decider, cpus int, duration time.Duration,
) (rush, error) {
	var decisions, admitted, failed atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for g := range cpus {
		wg.Go(func() {
			n, yes, bad := w.loop(ctx, d, g*orderLen/cpus, start.Add(duration))
			decisions.Add(n)
			admitted.Add(yes)
			failed.Add(bad)
		})
	}
	wg.Wait()
	took := time.Since(start)
	n := float64(decisions.Load())
	if bad := failed.Load(); float64(bad) > n/10 {
		return rush{}, fmt.Errorf("%d of %.0f calls failed", bad, n)
	}
	return rush{decisions: n, admitted: float64(admitted.Load()), took: took}, nil
}

// loop makes decisions until the deadline.
func (w *workload) loop(
	ctx context.Context, d decider, at int, deadline time.Time,
) (n, admitted, failed int64) {
	key := w.keys[0]
	for time.Now().Before(deadline) {
		for range 500 {
			if w.order != nil {
				key = w.keys[w.order[at%orderLen]]
				at++
			}
			ok, err := d.allow(ctx, key)
			if ok {
				admitted++
			}
			if err != nil {
				failed++
			}
		}
		n += 500
	}
	return n, admitted, failed
}
