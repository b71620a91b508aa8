//go:build unix

package dashboard_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/dashboard"
)

// BenchmarkViewers is what a second of 2,000 decisions under 300 limits costs with the page and 10
// viewers more than without the page, in milliseconds of CPU, and of these what it costs without
// viewers. An operation is three seconds, one of each. The viewers are in the same process.
func BenchmarkViewers(b *testing.B) {
	var bare, page, viewed time.Duration
	for b.Loop() {
		bare += costOf(b, false, 0)
		page += costOf(b, true, 0)
		viewed += costOf(b, true, 10)
	}
	perSecond := func(d time.Duration) float64 { return d.Seconds() * 1000 / float64(b.N) }
	b.ReportMetric(perSecond(bare), "bare-cpu-ms/s")
	b.ReportMetric(perSecond(page-bare), "page-cpu-ms/s")
	b.ReportMetric(perSecond(viewed-bare), "viewed-cpu-ms/s")
}

// costOf returns the CPU time of a second of decisions.
func costOf(b *testing.B, withPage bool, viewers int) time.Duration {
	const limits, decisions, tick = 300, 2000, 10 * time.Millisecond
	store := newStore(b)
	page := newPage(b, &dashboard.Options{Store: store})
	defer page.Close()
	all := make([]*ratelimit.Limiter, limits)
	for i := range all {
		all[i] = newLimiter(b, store,
			algorithm.SlidingLog(ratelimit.PerSecond(fmt.Sprint("limit-", i), 8)))
		if withPage {
			all[i] = all[i].WithObserver(page.Observe)
		}
		if _, err := all[i].Allow(b.Context(), "key"); err != nil { // the page allocates the limit
			b.Fatal(err)
		}
	}
	server := httptest.NewServer(page)
	defer server.Close()
	for range viewers {
		res, err := http.Get(server.URL + "/events")
		if err != nil {
			b.Fatal(err)
		}
		defer res.Body.Close()
		go func() { _, _ = io.Copy(io.Discard, res.Body) }()
	}
	charts := viewers * 50 / 60 // a second: the first 50 of each viewer, every minute
	parts := viewers / 10       // a second: each viewer asks every ten seconds how things are
	get := func(path string) {
		res, err := http.Get(server.URL + path)
		if err != nil {
			b.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		res.Body.Close()
	}
	time.Sleep(time.Second + tick) // the first sample of each limit touches new memory
	runtime.GC()
	began := cpu(b)
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for i := range decisions {
		if i%(decisions/int(time.Second/tick)) == 0 {
			<-ticker.C
		}
		if _, err := all[i%limits].Allow(b.Context(), "key"); err != nil {
			b.Fatal(err)
		}
		if i%(decisions/max(charts, 1)) == 0 && i/(decisions/max(charts, 1)) < charts {
			get(fmt.Sprint("/chart?name=limit-", i%limits))
		}
		if i%(decisions/max(parts, 1)) == 0 && i/(decisions/max(parts, 1)) < parts {
			get("/?part=now")
		}
	}
	return cpu(b) - began
}

// cpu returns the CPU time of the process.
func cpu(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
