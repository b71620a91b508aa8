package main

import (
	"context"
	"runtime"
	"time"
)

// growing measures decisions that all add to the history of their key: nothing is refused, and no
// unit leaves its window. An exact log needs memory for each of them, a counter does not.
func growing(quick bool) subject {
	duration := 250 * time.Millisecond
	if quick {
		duration = 60 * time.Millisecond
	}
	sub := subject{
		name: "growing", title: "Growing histories in process", reference: xTime,
		metrics: []metric{
			{"time", "ns per decision",
				"Wall time ÷ decisions of two goroutines on two CPUs. Each of 100,000 keys has " +
					"one earlier decision.", false},
			{"allocations", "per decision", "", true},
			{"bytes", "per decision", "Bytes allocated, including those for growing histories.",
				true},
		},
	}
	if runtime.NumCPU() < growingCPUs {
		return sub
	}
	keys := make([]string, manyKeys)
	for i := range keys {
		keys[i] = keyName(i)
	}
	for _, w := range []workload{
		{name: "uniform", order: uniform(manyKeys)},
		{name: "zipf", order: zipf(manyKeys)},
	} {
		w.quota, w.keys, w.warm = quota{10_000_000, time.Hour}, keys, 1
		sub.cases = append(sub.cases, testCase{
			name: w.name, entries: memoryNames(),
			measure: func(ctx context.Context, entry string) ([]float64, error) {
				d, err := openMemoryEntry(entry, w.quota)
				if err != nil {
					return nil, err
				}
				defer d.close()
				r, err := w.measure(ctx, d, growingCPUs, duration)
				return []float64{r.nanoseconds(), r.mallocs, r.bytes}, err
			},
		})
	}
	return sub
}

const growingCPUs = 2
