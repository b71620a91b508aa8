package conformance

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

const (
	// leastSpread and mostSpread bound how far the deadlines of calls that compete are spread.
	leastSpread = 1500 * time.Microsecond
	mostSpread  = 250 * time.Millisecond
)

// checkEndingContext ends contexts in mid-call and counts what was recorded against what the errors
// said. Where in a call that is depends on how long the calls of this store take, so it measures
// them first.
func checkEndingContext(e *env) {
	checkPrompt(e)
	competing, alone := e.endCompeting(), e.endAlone()
	competing()
	alone()
	time.Sleep(arrival)
	competing()
	alone()
}

// endCompeting ends the contexts of calls on one key, at any time up to the duration of the
// slowest. It returns a function that checks what was recorded.
func (e *env) endCompeting() (check func()) {
	const goroutines = 32
	key, a := e.key(), e.alg(driver.MaxUnits)
	var l ledger
	l.done.Add(3 * goroutines)
	spread := e.spreadOf(goroutines, key, a)
	e.together(goroutines, func(g int) error {
		for i := range e.rounds(12) {
			if _, err := e.takeWithin(key, a, spread*time.Duration((g*37+i*101)%1500)/1500,
				&l); err != nil {
				return err
			}
		}
		return nil
	})
	return func() { e.wantRecorded(&l, key, a) }
}

// spreadOf has goroutines make three takes each of one unit, and returns how far the deadlines of
// calls like these are spread, so that they end at any time in a call.
func (e *env) spreadOf(goroutines int, key string, a driver.Algorithm) time.Duration {
	slowest := make([]time.Duration, goroutines)
	e.together(goroutines, func(g int) error {
		for range 3 {
			begin := time.Now()
			_, err := e.store.Take(e.ctx, take(key, a, 1))
			slowest[g] = max(slowest[g], time.Since(begin))
			if err != nil {
				return err
			}
		}
		return nil
	})
	return min(max(slices.Max(slowest)*5/4, leastSpread), mostSpread)
}

// endAlone ends the contexts of calls that compete with no other: a little later if the call before
// failed, and a little sooner if it did not, so that most of them end near the instant after which
// the store cannot withdraw the call. It returns a function like that of endCompeting.
func (e *env) endAlone() (check func()) {
	const goroutines = 8
	a := e.alg(driver.MaxUnits)
	ledgers, keys := make([]ledger, goroutines), make([]string, goroutines)
	for g := range keys {
		keys[g] = e.key()
	}
	e.together(goroutines, func(g int) error {
		l, key, r := &ledgers[g], keys[g], newRand(e.seed, g)
		var took []time.Duration
		for range 8 {
			begin := time.Now()
			if _, err := e.store.Take(e.ctx, take(key, a, 1)); err != nil {
				return err
			}
			took = append(took, time.Since(begin))
			l.done.Add(1)
		}
		slices.Sort(took)
		within := took[len(took)/2]
		for range e.rounds(40) {
			// there is a connection again
			if _, err := e.store.Take(e.ctx, peek(key, a, 1)); err != nil {
				return err
			}
			decided, err := e.takeWithin(key, a, within*time.Duration(80+r.IntN(40))/100, l)
			if err != nil {
				return err
			}
			if decided {
				within = within * 9 / 10
			} else {
				within = min(within*10/9+time.Microsecond, mostSpread)
			}
		}
		return nil
	})
	return func() {
		for g, key := range keys {
			e.wantRecorded(&ledgers[g], key, a)
		}
	}
}

// checkPrompt checks how long after the ends of their contexts calls return. It compares them with
// controls, which only wait for contexts, on the same machine at the same time. It tries again if
// calls were later, and fails the third time; and if the controls were late, which proves nothing.
func checkPrompt(e *env) {
	const tries, enough, goroutines = 6, 3, 16
	key, a := e.key(), e.alg(driver.MaxUnits)
	spread := e.spreadOf(goroutines, key, a)
	failed := 0
	var noise [2]int64 // of the controls of all tries: a standstill may hit a call in one of them
	for range tries {
		calls, controls := e.lateness(goroutines, spread, key, a)
		late, quiet := "", true
		for i, most := range [len(noise)]struct {
			of   float64 // of the calls
			late int64
		}{{1, 15}, {0.97, 6}} {
			call, control := quantile(calls, most.of), quantile(controls, most.of)
			quiet = quiet && 2*control <= most.late
			noise[i] = max(noise[i], control)
			if call > 2*noise[i]+most.late {
				late = fmt.Sprintf("%d of %d calls returned %d ms or more after their contexts "+
					"had ended; those that only wait for a context take %d ms",
					len(calls)-int(most.of*float64(len(calls)-1)), len(calls), call, noise[i])
			}
		}
		if late != "" {
			failed++
		} else if quiet {
			return
		}
		if failed == enough {
			e.fatalf("%s", late)
		}
	}
}

// quantile returns the greatest of the smallest values, and 0 if there is none.
func quantile(sorted []int64, part float64) int64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(part*float64(len(sorted)-1))]
}

// lateness makes up to 2,000 takes whose contexts end within spread, and as many controls. It
// returns for each how long after the end of its context it returned, in order. The unit is a sleep
// of a millisecond, which is longer on a busy machine.
func (e *env) lateness(
	goroutines int, spread time.Duration, key string, a driver.Algorithm,
) (calls, controls []int64) {
	var ticks atomic.Int64
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for ; ; ticks.Add(1) {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	var mu sync.Mutex
	until := func(within time.Duration, late *[]int64, call func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(e.ctx, within)
		defer cancel()
		ended := make(chan int64, 1)
		stop := context.AfterFunc(ctx, func() { ended <- ticks.Load() })
		err := call(ctx)
		returned, after := ticks.Load(), int64(0)
		if !stop() {
			after = max(returned-<-ended, 0)
		}
		mu.Lock()
		defer mu.Unlock()
		*late = append(*late, after)
		return err
	}
	each, begin, budget := e.scale(2000)/goroutines, time.Now(), e.atMost(time.Second, time.Minute)
	e.together(goroutines, func(g int) error {
		r := newRand(e.seed, g)
		for i := 0; i < each && time.Since(begin) < budget; i++ {
			within := time.Duration(r.Int64N(int64(spread)))
			err := until(within, &calls, func(ctx context.Context) error {
				_, err := e.store.Take(ctx, take(key, a, 1))
				return new(ledger).note(err)
			})
			if err != nil {
				return err
			}
			err = until(within, &controls, func(ctx context.Context) error {
				<-ctx.Done()
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	slices.Sort(calls)
	slices.Sort(controls)
	return calls, controls
}
