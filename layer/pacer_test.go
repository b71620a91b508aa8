package layer

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestPacer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPacer(time.Second)
		var ran atomic.Int64
		takes := func(d time.Duration) func() {
			return func() { ran.Add(1); time.Sleep(d) }
		}
		ask := func(want int64, d time.Duration) {
			t.Helper()
			before := ran.Load()
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() { p.run(takes(d)) })
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
		time.Sleep(time.Second)
		synctest.Wait()
		ask(1, 0)
	})
}
