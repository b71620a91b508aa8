package main

import (
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"
)

// BenchmarkLoad measures decisions on a server by concurrent callers, each as fast as it gets
// answers. Callers and server share the machine. The hot key admits 10,000 units a second, so a
// faster entry also refuses a larger part of the calls. Calls are not timed one by one: reading the
// clock would be a large part of a cached refusal. A call that fails is not a decision, even where
// a library says "limited".
func BenchmarkLoad(b *testing.B) {
	many := workload{name: "10k-keys", quota: quota{100, time.Second}, keys: keyNames(10_000),
		order: uniform(10_000)}
	hot := workload{name: "hot-key", quota: quota{1000, 100 * time.Millisecond}, keys: keyNames(1)}
	refused := workload{name: "refused-key", quota: quota{10, time.Hour}, keys: keyNames(1)}
	uncached := redisEntriesExcept(oursAlone, cachingRueidis, cachingValkey)
	for _, l := range []struct {
		workload
		callers int
		entries []redisEntry
	}{
		{many, 1, uncached},
		{many, 64, uncached},
		{many, 512, uncached},
		// the others have no windows below a second
		{hot, 512, redisEntriesExcept(oursAlone, cachingRueidis, cachingValkey,
			emptyScript, httprateRedis, goRedisstore)},
		{refused, 64, redisEntriesExcept(oursAlone, emptyScript)},
	} {
		for _, e := range l.entries {
			name := fmt.Sprintf("%s/callers=%d/entry=%s", l.name, l.callers, e.name)
			b.Run(name, func(b *testing.B) {
				s := onServer(b)
				d := s.open(b, e, l.quota)
				var wg sync.WaitGroup
				for range l.callers { // connections, scripts, cached refusals
					wg.Go(func() {
						for range 20 {
							_, _ = d.allow(b.Context(), l.keys[0])
						}
					})
				}
				wg.Wait()
				before, client := s.snapshot(b, e.calls), ownCPU()
				b.ResetTimer()
				n := l.decide(b, d, l.callers)
				took, used := b.Elapsed(), ownCPU()-client
				decisions := n.report(b)
				b.ReportMetric(decisions/took.Seconds(), "decisions/s")
				b.ReportMetric(float64(used.Microseconds())/decisions, "client-µs/op")
				s.report(b, e.calls, before, decisions)
			})
		}
	}
}

// ownCPU returns the processor time of this process so far.
func ownCPU() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
