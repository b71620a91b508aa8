package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

const saysFrozen = "While nothing is decided, calls do not return ErrContended, however many wait."

var frozenRules = []rule{
	{name: "errors/frozen", says: saysReturn + " " + saysError, needs: freeze, check: checkFrozen},
	{name: "errors/frozen-without-deadline", says: saysReturn + " " + saysError + " " + saysFrozen,
		needs: freeze, check: checkFrozenWithoutDeadline},
	{name: "errors/no-key-while-frozen", says: saysKeys, needs: freeze, check: checkFrozenKey},
}

const (
	// freezes is how often a server is frozen under calls with deadlines, each time for frozenFor.
	// The deadlines are at most frozenDeadline.
	freezes        = 3
	frozenFor      = 250 * time.Millisecond
	frozenDeadline = 60 * time.Millisecond

	// lateInMedian is how long after their deadlines half of the calls may return.
	lateInMedian = 100 * time.Millisecond

	// ownDeadline is the longest deadline of its own that a store may have here.
	ownDeadline = 5 * time.Second
)

// freeze freezes the server until thaw is called, which may be done twice.
func (e *env) freeze() (thaw func()) {
	f, err := e.harness.Freeze()
	if err != nil {
		e.fatalf("Freeze: %w", err)
	}
	return sync.OnceFunc(func() {
		if err := f(); err != nil {
			e.fatalf("thaw: %w", err)
		}
	})
}

// checkFrozen freezes the server under takes with short deadlines, some of which are about to be
// recorded then.
func checkFrozen(e *env) {
	const callers = 8
	a := e.alg(driver.MaxUnits)
	ledgers, keys := make([]ledger, callers), make([]string, callers)
	for g := range keys {
		keys[g] = e.key()
	}
	var mu sync.Mutex
	var late []time.Duration // how long after their deadlines calls of a frozen server returned
	var phase atomic.Int32   // odd while the server is frozen
	stop := make(chan struct{})
	var connected sync.WaitGroup
	connected.Add(callers)
	connect := func(g int) error {
		defer connected.Done()
		_, err := e.store.Take(e.ctx, take(keys[g], a, 1))
		return err
	}
	caller := func(g int) error {
		if err := connect(g); err != nil {
			return err
		}
		ledgers[g].done.Add(1)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return nil
			default:
			}
			within := frozenDeadline * time.Duration(1+(g*7+i*3)%12) / 12
			begin, before := time.Now(), phase.Load()
			decided, err := e.takeWithin(keys[g], a, within, &ledgers[g])
			if err != nil {
				return err
			}
			if lateness := time.Since(begin) - within; lateness > 0 &&
				(before%2 == 1 || before != phase.Load()) {
				mu.Lock()
				late = append(late, lateness)
				mu.Unlock()
			}
			if !decided {
				time.Sleep(time.Millisecond)
			}
		}
	}
	e.whileCalled(callers, caller, func() {
		connected.Wait()
		e.freezeOften(&phase)
	}, func() { close(stop) })
	e.wantInTime(late)
	for range 2 {
		for g, key := range keys {
			e.wantRecorded(&ledgers[g], key, a)
		}
		time.Sleep(arrival)
	}
}

// wantInTime checks how long after their deadlines calls of a frozen server returned.
func (e *env) wantInTime(late []time.Duration) {
	slices.Sort(late)
	n := len(late)
	if n == 0 {
		e.fatalf("no call outlasted its context while the server was frozen for %v: it did not "+
			"freeze", frozenFor)
	}
	if half := late[n/2]; half > lateInMedian {
		e.fatalf("half of %d calls of a frozen server returned %v or more after their contexts "+
			"had ended", n, half)
	}
}

// freezeOften freezes the server, for frozenFor each time. phase is odd while it is frozen.
func (e *env) freezeOften(phase *atomic.Int32) {
	for range freezes {
		time.Sleep(50 * time.Millisecond)
		func() {
			thaw := e.freeze()
			defer thaw()
			phase.Add(1)
			time.Sleep(frozenFor)
			phase.Add(1)
		}()
	}
}

// checkFrozenWithoutDeadline freezes the server under takes whose contexts have no deadline.
func checkFrozenWithoutDeadline(e *env) {
	key, a := e.key(), e.alg(driver.MaxUnits)
	var l ledger
	stop := make(chan struct{})
	e.admit(take(key, a, 1))
	l.done.Add(1)
	const callers = 8
	returned := make(chan struct{}, callers)
	caller := func(int) error {
		defer func() { returned <- struct{}{} }()
		for {
			select {
			case <-stop:
				return nil
			default:
			}
			_, err := e.store.Take(context.WithoutCancel(e.ctx), take(key, a, 1))
			if errors.Is(err, driver.ErrContended) {
				return fmt.Errorf("a frozen server is answered with ErrContended: %w", err)
			} else if err != nil {
				return l.note(err)
			}
			l.done.Add(1)
		}
	}
	e.whileCalled(callers, caller, func() {
		time.Sleep(20 * time.Millisecond)
		thaw := e.freeze()
		defer thaw()
		timer := time.NewTimer(ownDeadline)
		defer timer.Stop()
		for n := range callers {
			select {
			case <-returned:
			case <-timer.C:
				e.fatalf("%d of %d calls without a deadline have not returned %v after the "+
					"server froze, or it did not freeze", callers-n, callers, ownDeadline)
			}
		}
		thaw()
	}, func() { close(stop) })
	e.wantRecorded(&l, key, a)
	time.Sleep(arrival)
	e.wantRecorded(&l, key, a)
}

// whileCalled runs act while n callers run. stop makes them return, and is called when act has
// returned or failed.
func (e *env) whileCalled(n int, caller func(int) error, act, stop func()) {
	var failure any
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer stop()
		defer func() { failure = recover() }()
		act()
	}()
	defer func() {
		<-done
		if failure != nil {
			panic(failure)
		}
	}()
	e.together(n, caller)
}

func checkFrozenKey(e *env) {
	const secret = "s3cret-of-a-user"
	key, a := secret+e.key(), e.alg(5)
	e.admit(take(key, a, 1))
	thaw := e.freeze()
	defer thaw()
	errs := make(chan error, 2)
	go func() {
		ctx, cancel := context.WithTimeout(e.ctx, frozenDeadline)
		defer cancel()
		_, err := e.store.Take(ctx, take(key, a, 1))
		errs <- err
	}()
	go func() {
		_, err := e.store.Take(e.ctx, take(key, a, 1))
		errs <- err
	}()
	timer := time.NewTimer(ownDeadline)
	defer timer.Stop()
	for range 2 {
		select {
		case err := <-errs:
			for err := range allErrors([]error{err}) {
				if strings.Contains(err.Error(), secret) {
					e.fatalf("an error contains the key: %q", err)
				}
			}
		case <-timer.C: // errors/frozen-without-deadline fails for it
			return
		}
	}
	thaw()
	e.awaitLeft(key, a)
}
