package pace_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit/layer/internal/pace"
)

func TestPacer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pace.New(time.Second)
		var ran atomic.Int64
		takes := func(d time.Duration) func() {
			return func() { ran.Add(1); time.Sleep(d) }
		}
		ask := func(want int64, d time.Duration) {
			t.Helper()
			before := ran.Load()
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() { p.Go(takes(d)) })
			}
			wg.Wait()
			synctest.Wait()
			if got := ran.Load() - before; got != want {
				t.Errorf("ran %d times, want %d", got, want)
			}
		}
		ask(1, 0)
		time.Sleep(time.Second - time.Nanosecond)
		ask(0, 0)
		time.Sleep(time.Nanosecond)
		ask(1, 3*time.Second)
		time.Sleep(2 * time.Second)
		ask(0, 0) // the last one still runs
		if !p.Running() {
			t.Error("does not say that it runs")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if p.Running() {
			t.Error("says that it runs")
		}
		ask(1, 0)
	})
}
