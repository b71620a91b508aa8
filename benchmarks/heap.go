package main

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"
)

// coarse is the column in which only ours has an entry.
const coarse = "saturated, coarse"

// heap measures the memory that the limiter of many keys keeps.
func heap(quick bool) subject {
	sparseKeys, fullKeys := 1_000_000, 10_000
	if quick {
		sparseKeys, fullKeys = 100_000, 1_000
	}
	measure := func(q quota, keys, requests int) func(context.Context, string) ([]float64, error) {
		return func(ctx context.Context, entry string) ([]float64, error) {
			return heapOf(ctx, func() (decider, error) { return openMemoryEntry(entry, q) }, keys,
				requests, nil)
		}
	}
	return subject{
		name: "heap", title: "Memory in process", reference: xTime, rounds: 1,
		metrics: []metric{{"heap", "bytes a key",
			"Sparse: 1M keys (quick: 100k), 5 requests at 100/min. Saturated: 10k keys (quick: " +
				"1k), 1,000 requests at 1,000/min; coarse: with Resolution = Window/100.", false}},
		cases: []testCase{
			{name: "sparse", entries: memoryNames(),
				measure: measure(quota{100, time.Minute}, sparseKeys, 5)},
			{name: "saturated", entries: memoryNames(),
				measure: measure(quota{1000, time.Minute}, fullKeys, 1000)},
			{name: coarse, entries: []string{ours},
				measure: func(ctx context.Context, _ string) ([]float64, error) {
					// one request each 60 ms: as many records as the resolution allows
					var clock atomic.Int64
					clock.Store(time.Now().UnixMicro())
					open := func() (decider, error) {
						return openMemory(quota{1000, time.Minute},
							600*time.Millisecond, clock.Load)
					}
					return heapOf(ctx, open, fullKeys, 1000, func() { clock.Add(59_990) })
				}},
		},
	}
}

// heapOf returns the heap that each key costs once it has made its requests, in turn with the other
// keys. after follows every turn.
func heapOf(
	ctx context.Context, open func() (decider, error), keys, requests int, after func(),
) ([]float64, error) {
	before := heapInUse()
	d, err := open()
	if err != nil {
		return nil, err
	}
	defer d.close()
	for range requests {
		for i := range keys {
			if _, err := d.allow(ctx, keyName(i)); err != nil {
				return nil, err
			}
		}
		if after != nil {
			after()
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	used := heapInUse() - before
	runtime.KeepAlive(d)
	return []float64{float64(used) / float64(keys)}, nil
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
