package conformance

import (
	"slices"
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
	slowest := make([]time.Duration, goroutines)
	e.together(goroutines, func(g int) error {
		for range 3 {
			begin := time.Now()
			_, err := e.store.Take(e.ctx, take(key, a, 1))
			slowest[g] = max(slowest[g], time.Since(begin))
			if err != nil {
				return err
			}
			l.done.Add(1)
		}
		return nil
	})
	spread := min(max(slices.Max(slowest)*5/4, leastSpread), mostSpread)
	e.together(goroutines, func(g int) error {
		for i := range e.scale(12) {
			if _, err := e.takeWithin(key, a, spread*time.Duration((g*37+i*101)%1500)/1500,
				&l); err != nil {
				return err
			}
		}
		return nil
	})
	return func() { e.wantRecorded(&l, key, a) }
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
		for range e.scale(40) {
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
