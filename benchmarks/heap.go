package main

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"
)

// coarse is a case of this module only.
const coarse = "saturated, coarse"

// heap measures the memory of a limiter of many keys.
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
		metrics: []metric{{"heap", "bytes per key",
			"Sparse: 1M keys (quick: 100k) with 5 requests each, limit 100/min. Saturated: " +
				"10k keys (quick: 1k) with 1,000 requests each, limit 1,000/min; coarse: the " +
				"same with Resolution = Window/100.", false}},
		cases: []testCase{
			{name: "sparse", entries: memoryNames(),
				measure: measure(quota{100, time.Minute}, sparseKeys, 5)},
			{name: "saturated", entries: memoryNames(),
				measure: measure(quota{1000, time.Minute}, fullKeys, 1000)},
			{name: coarse, entries: []string{ours},
				measure: func(ctx context.Context, _ string) ([]float64, error) {
					// a request every 60 ms makes as many records as the resolution allows
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

// heapOf returns the heap bytes per key after the requests of all keys, in turn. It calls after, if
// not nil, after each turn of all keys.
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
