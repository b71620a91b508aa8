package conformance

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// env is what a check runs in: one goroutine's view of one harness.
type env struct {
	*suite
	ctx     context.Context
	harness Harness
	store   driver.Store
	second  driver.Store // nil unless the rule needs it
	clock   *clock       // nil if the store runs on its own
	rand    *rand.Rand
	seed    uint64
	prefix  string // of all keys, so that runs on one server share none
	keys    int
}

// violation is the value with which fatalf panics.
type violation struct{ error }

// run sends the error of check, or nil.
func (e *env) run(check func(*env), done chan<- error) {
	err := errors.New("a function of the harness ended the case, for example by t.FailNow")
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if v := recover(); v != nil {
			failure, ok := v.(violation)
			if !ok {
				failure.error = panicked(v)
			}
			err = failure.error
		}
		done <- err
	}()
	check(e)
	err = nil
}

// fatalf ends the case. It may be called from the goroutine of the check only.
func (e *env) fatalf(format string, args ...any) {
	panic(violation{fmt.Errorf("%s: %w", location(), fmt.Errorf(format, args...))})
}

// location returns the line of the check that is running, not that of the helper it called.
func location() (at string) {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs)])
	for {
		f, more := frames.Next()
		if strings.Contains(f.Function, ".check") {
			at = fmt.Sprintf("%s:%d", filepath.Base(f.File), f.Line)
		}
		if !more {
			return at
		}
	}
}

// together runs f in n goroutines that start at once, and fails with what they return.
func (e *env) together(n int, f func(i int) error) {
	var wg sync.WaitGroup
	errs := make([]error, n)
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			debug.SetPanicOnFault(true)
			defer func() {
				if v := recover(); v != nil {
					errs[i] = panicked(v)
				}
			}()
			<-start
			errs[i] = f(i)
		})
	}
	close(start)
	wg.Wait()
	failed := slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(failed) > 0 {
		e.fatalf("%d of %d goroutines failed, one of them: %w", len(failed), n, failed[0])
	}
}

// shapes are what keys look like before their number.
var shapes = []string{
	"%s", "user:%s", "tenant/7/%s", "203.0.113.7|%s", "GET /v1/items %s", "%s@example.com",
}

// key returns a key that nothing else uses.
func (e *env) key() string {
	e.keys++
	return fmt.Sprintf(shapes[(e.seed+uint64(e.keys))%uint64(len(shapes))], e.prefix) + "-" +
		strconv.Itoa(e.keys)
}

// scale returns n, or more at full depth.
func (e *env) scale(n int) int {
	if e.full {
		n *= 100
	}
	return n
}

// rounds counts to n, or further at full depth. It ends early on a slow store or machine.
func (e *env) rounds(n int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := range e.scale(n) {
			if e.late() || !yield(i) {
				return
			}
		}
	}
}

// late reports whether most of the time of a case is over at the usual depth.
func (e *env) late() bool {
	at, _ := e.ctx.Deadline()
	return !e.full && time.Until(at) < watchdog/4
}

// atMost returns how long a case may run that makes as many calls as it can.
func (e *env) atMost(usual, full time.Duration) time.Duration {
	if e.full {
		return full
	}
	return usual * e.patience
}

// start is an instant in 2027 that is not a whole millisecond.
const start = int64(1_800_000_000_123_457)

// begin returns where the clock of a case starts: a microsecond of any year from 2002 to 2108.
func begin(seed uint64) int64 {
	return 1_010_000_000_000_000 + rand.New(rand.NewPCG(seed, 2)).Int64N(3_370_000_000_000_000)
}

// clock is the injected clock.
type clock struct {
	us   atomic.Int64
	tick atomic.Int64 // how far every reading moves it
}

func (c *clock) now() int64 { return c.us.Add(c.tick.Load()) }

func (c *clock) set(us int64) { c.us.Store(us) }

func (c *clock) add(d time.Duration) { c.us.Add(d.Microseconds()) }

func (c *clock) after(t int64, d time.Duration) { c.us.Store(t + d.Microseconds()) }

// newRand returns the random numbers of one goroutine of a case.
func newRand(seed uint64, goroutine int) *rand.Rand {
	return rand.New(rand.NewPCG(seed, uint64(goroutine)))
}

// panicked returns the error for a recovered panic.
func panicked(v any) error {
	if err, ok := v.(interface{ Addr() uintptr }); ok {
		return fmt.Errorf("memory fault at %#x: a Step may write into its state, and the store "+
			"may have passed bytes that are not its own to write, "+
			"such as those that a database maps; pass a copy\n%v\n%s", err.Addr(), v, debug.Stack())
	}
	return fmt.Errorf("panic: %v\n%s", v, debug.Stack())
}

// newOrder returns a function that returns two or three of n indices in random order.
func newOrder(seed uint64, goroutine, n int) func() []int {
	r := rand.New(rand.NewPCG(seed, uint64(goroutine)))
	return func() []int { return r.Perm(n)[:2+r.IntN(2)] }
}

// only returns the store of the harness.
func only(e *env, _ int) driver.Store { return e.store }
