package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
)

const (
	scaleCPUs  = 2
	sampleKeys = 1 << 20 // number of keys that are measured, drawn from all
	probeKeys  = 1 << 10
	probeTime  = 500 * time.Millisecond

	hugeKeys       = 10_000_000
	hugeKeysMemory = 10 << 30 // bytes of memory that must be available for hugeKeys
)

var scaleQuota = quota{100, time.Hour}

// scale measures how the cost of a decision grows with the number of keys, and how dropping expired
// keys affects decisions.
func scale(quick bool) subject {
	sub := subject{
		name: "scale", title: "Many keys in process", reference: xTime, rounds: 1,
		metrics: []metric{
			{"time", "ns per decision",
				"2 goroutines, all keys equally often. The case is the number of keys.", false},
			{"heap", "bytes per key", "After one request of each key.", false},
			{"GC pause", "µs",
				"The longest stop of all goroutines by the garbage collector while keys were " +
					"added and used.", true},
			{"GC", "ms", "Wall time of one collection with all keys in memory.", false},
			{"longest", "µs",
				"The longest decision of one goroutine in half a second without other load: " +
					"mostly noise of the machine.", true},
			{"longest during expiry", "µs",
				"The same while all keys expire at once and are dropped. x/time/rate in a map " +
					"drops nothing.", true},
			{"expiry", "ms", "Time from the first expired key that is deleted to the last.", true},
		},
	}
	sizes := []int{10_000, 1_000_000}
	switch {
	case quick:
		sizes[1] = 100_000
	case memoryAvailable() >= hugeKeysMemory:
		sizes = append(sizes, hugeKeys)
	}
	for _, keys := range sizes {
		sub.cases = append(sub.cases, testCase{
			name: thousands(fmt.Sprint(keys)), entries: []string{xTime, ours},
			measure: func(ctx context.Context, entry string) ([]float64, error) {
				return scaleOf(ctx, entry, keys)
			},
		})
	}
	return sub
}

// A crowd is a limiter whose keys can all expire at once.
type crowd struct {
	decider
	size   func() int // number of states; nil if they are never dropped
	expire func()
}

func openCrowd(entry string) (crowd, error) {
	if entry != ours {
		d, err := openMemoryEntry(entry, scaleQuota)
		return crowd{decider: d}, err
	}
	var ahead atomic.Int64
	epoch, base := time.Now().UnixMicro(), time.Now()
	store, err := memorystore.New(&memorystore.Options{MaxKeys: maxKeys, Now: func() int64 {
		return epoch + time.Since(base).Microseconds() + ahead.Load()
	}})
	if err != nil {
		return crowd{}, err
	}
	limiter, err := ratelimit.New(store, algorithm.SlidingLog(scaleQuota.limit()))
	if err != nil {
		store.Close()
		return crowd{}, err
	}
	return crowd{
		decider: decider{
			allow: func(ctx context.Context, key string) (bool, error) {
				res, err := limiter.Allow(ctx, key)
				return res.Allowed, err
			},
			close: func() { store.Close() },
		},
		size:   func() int { return store.Stats().Keys },
		expire: func() { ahead.Add(scaleQuota.window.Microseconds() + 1) },
	}, nil
}

func scaleOf(ctx context.Context, entry string, keys int) ([]float64, error) {
	random := rand.New(rand.NewPCG(1, 2))
	w := workload{keys: make([]string, sampleKeys), order: make([]uint32, orderLen)}
	for i := range w.keys {
		w.keys[i] = keyName(random.IntN(keys))
	}
	for i := range w.order {
		w.order[i] = uint32(i % sampleKeys)
	}
	probes := make([]string, probeKeys)
	for i := range probes {
		probes[i] = fmt.Sprintf("probe:%d", i)
	}

	before, pauses := heapInUse(), readPauses()
	c, err := openCrowd(entry)
	if err != nil {
		return nil, err
	}
	defer c.close()
	if err := addKeys(ctx, c.decider, keys); err != nil {
		return nil, err
	}
	heap := float64(heapInUse()-before) / float64(keys)
	start := time.Now()
	runtime.GC()
	collection := time.Since(start)

	d, err := w.decide(ctx, c.decider, scaleCPUs, 300*time.Millisecond)
	if err != nil {
		return nil, err
	}
	pause := longestPause(pauses, readPauses())
	longest, err := probe(ctx, c.decider, probes, func() bool { return false })
	if err != nil {
		return nil, err
	}
	forgetting, took := math.NaN(), math.NaN()
	if c.size != nil {
		c.expire()
		full, began := c.size(), time.Time{}
		forgetting, err = probe(ctx, c.decider, probes, func() bool {
			size := c.size()
			if began.IsZero() {
				if size < full {
					began = time.Now()
				}
			} else if size <= probeKeys && math.IsNaN(took) {
				took = float64(time.Since(began).Microseconds()) / 1e3
			}
			return math.IsNaN(took)
		})
		if err != nil {
			return nil, err
		}
	}
	runtime.KeepAlive(c)
	return []float64{d.nanoseconds(), heap, pause, float64(collection.Microseconds()) / 1e3,
		longest, forgetting, took}, nil
}

// addKeys makes one request of each key.
func addKeys(ctx context.Context, d decider, keys int) error {
	errs := make([]error, scaleCPUs)
	var wg sync.WaitGroup
	for g := range errs {
		wg.Go(func() {
			for i := g; i < keys && errs[g] == nil; i += len(errs) {
				_, errs[g] = d.allow(ctx, keyName(i))
				if i%100_000 == g && errs[g] == nil {
					errs[g] = ctx.Err()
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// probe makes decisions on its keys in turn, for at least probeTime and as long as more, called
// every 100 decisions, returns true. It returns the longest decision in µs.
func probe(ctx context.Context, d decider, keys []string, more func() bool) (float64, error) {
	var longest time.Duration
	begin := time.Now()
	for last, i := begin, 0; ; i++ {
		if i%100 == 0 {
			if again := more(); ctx.Err() != nil || !again && last.Sub(begin) > probeTime {
				return float64(longest.Nanoseconds()) / 1e3, ctx.Err()
			}
			last = time.Now()
		}
		if _, err := d.allow(ctx, keys[i%len(keys)]); err != nil {
			return 0, err
		}
		now := time.Now()
		longest = max(longest, now.Sub(last))
		last = now
	}
}

const gcPauses = "/sched/pauses/total/gc:seconds"

// readPauses returns how often the garbage collector has stopped all goroutines, by duration.
func readPauses() *metrics.Float64Histogram {
	sample := []metrics.Sample{{Name: gcPauses}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindFloat64Histogram {
		return nil
	}
	return sample[0].Value.Float64Histogram()
}

// longestPause returns an upper bound in µs of the longest pause between two readings: 0 if there
// is none, NaN if unknown.
func longestPause(before, after *metrics.Float64Histogram) float64 {
	if before == nil || after == nil {
		return math.NaN()
	}
	for i := len(after.Counts) - 1; i >= 0; i-- {
		if after.Counts[i] > before.Counts[i] {
			bound := after.Buckets[i+1]
			if math.IsInf(bound, 1) {
				bound = after.Buckets[i]
			}
			return bound * 1e6
		}
	}
	return 0
}

// memoryAvailable returns the bytes of available memory, 0 if unknown.
func memoryAvailable() int64 {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		var kilobytes int64
		if _, err := fmt.Sscanf(line, "MemAvailable: %d kB", &kilobytes); err == nil {
			return kilobytes << 10
		}
	}
	return 0
}
