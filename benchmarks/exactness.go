package main

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// exactMax is the limit of the traces. On servers the window is a second, since some libraries
// there have no shorter one.
const (
	exactMax    = 10
	aimedTraces = 20

	// exactTick is the resolution of the finest clock of an entry. What lies in one window to the
	// nanosecond can be a whole window apart on such a clock.
	exactTick = time.Microsecond
)

// A call is one decision as its caller saw it: it was made between before and after.
type call struct {
	before, after time.Duration
	admitted      bool
}

// exactness measures how far the entries exceed the limit, and how often they refuse wrongly. addr
// returns the server's address; it is nil if processes cannot share a limiter.
func exactness(
	name, title string, entries []string, window time.Duration, quick bool,
	open func(ctx context.Context, entry string, q quota) ([]decider, error), addr func() string,
) subject {
	traces, windows := 200, 4
	if quick {
		traces, windows = 60, 2
	}
	return subject{
		name: name, title: title, rounds: 1,
		metrics: []metric{
			{"worst", "most admitted in any rolling window ÷ limit",
				"Counts only admissions that certainly lie in one window: from the start of " +
					"the first call to the end of the last, less than the window minus 1 µs " +
					"has passed.",
				true},
			{"wrong", "share of the refusals",
				"Refusals that an exact log of the same admissions would not have made.", true},
			{"storm", "admitted ÷ limit",
				"64 goroutines on one fresh key; on a server they share two clients.", true},
			{"two processes", "admitted ÷ limit",
				"The same in two processes, each with one client and 64 goroutines.", true},
			{"errors", "share of the calls", "", true},
		},
		cases: []testCase{{name: "aimed and random",
			entries: entries, measure: func(ctx context.Context, entry string) ([]float64, error) {
				ds, err := open(ctx, entry, quota{exactMax, window})
				if err != nil {
					return nil, err
				}
				defer closeAll(ds)
				storming, err := open(ctx, entry, stormQuota)
				if err != nil {
					return nil, err
				}
				defer closeAll(storming)
				worst, wrong, errors := playTraces(ctx, ds, traces, window, windows)
				storm := playStorm(ctx, storming)
				processes := stormCount{}
				if addr != nil {
					if processes, err = stormProcesses(ctx, stormTask{entry, addr()}); err != nil {
						return nil, err
					}
				}
				failed := max(errors, storm.failed(), processes.failed())
				return []float64{worst, wrong, storm.share(), processes.share(), failed}, nil
			}}},
	}
}

func closeAll(ds []decider) {
	for _, d := range ds {
		d.close()
	}
}

// playTraces plays a trace on each key, all at the same time.
func playTraces(
	ctx context.Context, ds []decider, random int, window time.Duration, windows int,
) (worst, wrong, failed float64) {
	var (
		mu                           sync.Mutex
		most, refused, unjust, calls int
		bad                          int
		wg                           sync.WaitGroup
	)
	start := time.Now()
	for i := range random + aimedTraces {
		wg.Go(func() {
			next := randomBursts(window, uint64(i))
			if i >= random {
				next = aimedBursts(window, float64(i-random)/aimedTraces)
			}
			trace, errors := play(ctx, ds, keyName(i), start, window*time.Duration(windows), next)
			m, r, u := examine(trace, quota{exactMax, window})
			mu.Lock()
			defer mu.Unlock()
			most, refused, unjust, calls, bad = max(most, m), refused+r, unjust+u,
				calls+len(trace)+errors, bad+errors
		})
	}
	wg.Wait()
	return float64(most) / exactMax, float64(unjust) / float64(max(refused, 1)),
		float64(bad) / float64(max(calls, 1))
}

// play makes the bursts of calls that next returns, each after its pause. It uses the deciders in
// turn.
func play(
	ctx context.Context, ds []decider, key string, start time.Time, length time.Duration,
	next func() (pause time.Duration, calls int),
) (trace []call, failed int) {
	due := time.Duration(0)
	for ctx.Err() == nil {
		pause, calls := next()
		due += pause
		if due > length {
			break
		}
		time.Sleep(due - time.Since(start))
		for i := range calls {
			before := time.Since(start)
			ok, err := ds[i%len(ds)].allow(ctx, key)
			if err != nil {
				failed++
				continue
			}
			trace = append(trace, call{before, time.Since(start), ok})
		}
	}
	return trace, failed
}

// randomBursts returns bursts of 1 to 12 calls, 0 to 0.7 windows apart.
func randomBursts(window time.Duration, seed uint64) func() (time.Duration, int) {
	random := rand.New(rand.NewPCG(seed, 1))
	return func() (time.Duration, int) {
		return time.Duration(random.Float64() * 0.7 * float64(window)), 1 + random.IntN(12)
	}
}

// aimedBursts begins a window with one call, waits for a phase, and then calls as often as the
// limit every twentieth of a window: on both sides of every window edge.
func aimedBursts(window time.Duration, phase float64) func() (time.Duration, int) {
	n := 0
	return func() (time.Duration, int) {
		n++
		switch n {
		case 1:
			return 0, 1
		case 2:
			return time.Duration(phase * float64(window)), exactMax
		}
		return window / 20, exactMax
	}
}

// examine returns the most admissions that certainly lie in one window, the number of refusals, and
// the number of those that are certainly wrong, for a clock of the resolution exactTick.
func examine(trace []call, q quota) (most, refused, wrong int) {
	var admitted []call
	first := 0
	for _, c := range trace {
		if !c.admitted {
			refused++
			live := 0
			for i := len(admitted) - 1; i >= 0 &&
				admitted[i].after > c.before-q.window-exactTick; i-- {
				live++
			}
			if live < int(q.max) {
				wrong++
			}
			continue
		}
		admitted = append(admitted, c)
		for c.after-admitted[first].before > q.window-exactTick {
			first++
		}
		most = max(most, len(admitted)-first)
	}
	return most, refused, wrong
}

func exactMemory(quick bool) subject {
	return exactness("exact-memory", "Exactness in process", memoryNames(), time.Second/2, quick,
		func(_ context.Context, entry string, q quota) ([]decider, error) {
			d, err := openMemoryEntry(entry, q)
			return []decider{d}, err
		}, nil)
}

func exactRedis(s **server, quick bool) subject {
	without := []string{emptyScript, atOnce, zsetRetry, zsetValkey, oursAlone}
	if quick {
		without = append(without, notQuick...)
	}
	return exactness("exact-redis", "Exactness on the server",
		redisNames(without...), time.Second, quick,
		func(ctx context.Context, entry string, q quota) ([]decider, error) {
			_, one, err := (*s).open(ctx, entry, q)
			if err != nil {
				return nil, err
			}
			_, two, err := (*s).open(ctx, entry, q)
			if err != nil {
				one.close()
				return nil, err
			}
			return []decider{one.decider, two.decider}, nil
		}, func() string { return (*s).addr })
}
