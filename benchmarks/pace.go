package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// A count counts decisions by result.
type count struct{ decisions, admitted, failed int64 }

// A pacer makes decisions at a steady rate, on its keys in turn.
type pacer struct {
	decider
	keys []string
	rate float64 // decisions a second; 0 means as fast as possible
	next atomic.Int64
}

const paceWorkers = 16

// run makes decisions for the duration, or until stop, if not nil, returns true.
func (p *pacer) run(
	ctx context.Context, workers int, duration time.Duration, stop func(admitted bool) bool,
) count {
	var decisions, admitted, failed atomic.Int64
	var done atomic.Bool
	var wg sync.WaitGroup
	start, first := time.Now(), p.next.Load()
	for range workers {
		wg.Go(func() {
			for ctx.Err() == nil && !done.Load() && time.Since(start) < duration {
				i := p.next.Add(1) - 1
				if p.rate > 0 {
					time.Sleep(time.Duration(float64(i-first)/p.rate*1e9) - time.Since(start))
				}
				ok, err := p.allow(ctx, p.keys[i%int64(len(p.keys))])
				decisions.Add(1)
				if err != nil {
					failed.Add(1)
					continue
				}
				if ok {
					admitted.Add(1)
				}
				if stop != nil && stop(ok) {
					done.Store(true)
				}
			}
		})
	}
	wg.Wait()
	return count{decisions.Load(), admitted.Load(), failed.Load()}
}

func keyNames(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = keyName(i)
	}
	return keys
}
