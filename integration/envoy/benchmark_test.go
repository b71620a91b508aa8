package envoy

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/truewindow/ratelimit/integration/servers"
)

const benchmarkFile = `
domain: api
descriptors:
  - key: tenant
    rate_limit: {unit: day, requests_per_unit: 1000}
    descriptors:
      - {key: path, rate_limit: {unit: hour, requests_per_unit: 100}}
`

// BenchmarkService has two descriptors in each request, of 1,000 tenants, from 16 clients at once
// for each CPU, which share a connection as those of one worker of Envoy do. In a run of some
// seconds nearly all are admitted. This prints the quotients by the first entry:
//
//	for round in 1 2 3 4; do
//		RATELIMIT_PROGRESS=/dev/null go -C integration/envoy test -run '^$' -bench Service
//	done | go -C benchmarks run .
func BenchmarkService(b *testing.B) {
	setEnvironment(b, servers.Start(b, servers.Newest()).Addr,
		map[string]string{"api.yaml": benchmarkFile})
	for _, entry := range []struct {
		name  string
		start func(testing.TB) *service
	}{
		{"envoyproxy", startTheirs},
		{"redis", func(t testing.TB) *service { return startOurs(t) }},
		{"redis-each", func(t testing.TB) *service { return startOurs(t, alike...) }},
		{"memory", func(t testing.TB) *service { return startOurs(t, "--store=memory") }},
	} {
		b.Run("entry="+entry.name, func(b *testing.B) {
			measure(b, entry.start(b))
		})
	}
}

func measure(b *testing.B, s *service) {
	b.SetParallelism(16)
	before := cpuTime(b, s.pid)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			tenant := "tenant" + strconv.Itoa(rand.IntN(1000))
			resp, err := s.ShouldRateLimit(b.Context(), call("api", of("tenant", tenant),
				of("tenant", tenant, "path", "/v1/chat")))
			if err != nil || resp.GetOverallCode() == rls.RateLimitResponse_UNKNOWN {
				b.Error(resp, err)
				return
			}
		}
	})
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
	used := cpuTime(b, s.pid) - before
	b.ReportMetric(float64(used.Microseconds())/float64(b.N), "CPU-µs/request")
}

// cpuTime returns the time for which a process has used a CPU.
func cpuTime(b *testing.B, pid int) time.Duration {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Skip("the times of processes are read from /proc")
	}
	// The name of the program, the second field, is in parentheses and may have spaces.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	const tick = 10 * time.Millisecond
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(string(field), 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * tick
}
