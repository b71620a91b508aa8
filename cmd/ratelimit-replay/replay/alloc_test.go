//go:build !race

package replay

import (
	"strings"
	"testing"
	"time"

	"github.com/truewindow/ratelimit/cmd/ratelimit-replay/replay/loggen"
)

// generated returns a log.
func generated(tb testing.TB, format string, lines int64) string {
	tb.Helper()
	var log strings.Builder
	err := loggen.Write(&log, loggen.Options{Format: format, Seed: 1, Keys: 100, Lines: lines,
		Start:    time.Date(2026, time.May, 1, 10, 0, 0, 0, time.UTC),
		Interval: time.Millisecond, Late: time.Second})
	if err != nil {
		tb.Fatal(err)
	}
	return log.String()
}

// TestLinesAreParsedWithoutAllocation checks what makes replays fast.
func TestLinesAreParsedWithoutAllocation(t *testing.T) {
	for format, p := range map[string]parser{
		"common":   newAccessParser("client", "", newAddresses(nil)),
		"combined": newAccessParser("agent", "bytes", newAddresses(nil)),
		"json":     newJSONParser("request.path", "time", "tokens", newAddresses(nil)),
	} {
		b := &block{cut: []byte(generated(t, format, 1000))}
		b.parse(p) // makes room for the arrivals
		if len(b.arrivals) != 1000 {
			t.Fatalf("%s: %d arrivals, %v", format, len(b.arrivals), b.unread)
		}
		if n := testing.AllocsPerRun(10, func() { b.parse(p) }); n > 0 {
			t.Errorf("%s: %v allocations for 1000 lines", format, n)
		}
	}
}

func BenchmarkReplay(b *testing.B) {
	for _, format := range []string{"common", "combined", "json"} {
		b.Run(format, func(b *testing.B) {
			const lines = 100_000
			log := generated(b, format, lines)
			b.SetBytes(int64(len(log)))
			for b.Loop() {
				report, err := runOne(b.Context(), strings.NewReader(log),
					Options{Proposals: exactly(tenAMinute)})
				if err != nil || report.Input.Requests != lines {
					b.Fatal(report, err)
				}
			}
			b.ReportMetric(lines*float64(b.N)/b.Elapsed().Seconds(), "lines/s")
		})
	}
}
