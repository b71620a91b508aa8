package conformance

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
)

// A rule is one named case.
type rule struct {
	name  string // group/name
	says  string // the sentences of the contract that it proves
	needs needs
	check func(*env)
}

func (r rule) group() string {
	group, _, _ := strings.Cut(r.name, "/")
	return group
}

// needs tells what a case wants beside a store on the case's clock.
type needs uint8

const (
	ownClock needs = 1 << iota // a store on its own clock instead
	second
	dropScripts
	closing
	history
)

// missing returns what a harness lacks, or "".
func (n needs) missing(h Harness, s *suite) string {
	switch {
	case n&second != 0 && h.Second == nil:
		return "the harness has no Second"
	case n&dropScripts != 0 && h.DropScripts == nil:
		return "the harness has no DropScripts"
	case n&closing != 0 && h.Close == nil:
		return "the harness has no Close"
	case n&history != 0 && s.checkHistory == nil:
		return "the options have no CheckHistory"
	}
	return ""
}

// rules returns the table of all rules.
func rules() []rule {
	return slices.Concat(identityRules, stepRules, opRules, resultRules, clockRules, expiryRules, takeAllRules, errorRules,
		concurrencyRules, algorithmRules)
}

// watchdog is how long a case may last at the usual depth. It is also the shortest time to live, in real time, of what a case on
// an injected clock leaves on a server and reads again.
const watchdog = time.Minute

// try runs one rule. It returns why the rule was skipped, or how it was broken.
func (s *suite) try(t testing.TB, newStore NewStore, r rule) (skipped string, err error) {
	t.Helper()
	if reason, ok := s.excepted(r); ok {
		return "excepted: " + reason, nil
	}
	e := &env{suite: s, prefix: crand.Text()[:12], seed: seed()}
	e.rand = rand.New(rand.NewPCG(e.seed, 0))
	var now func() int64
	if r.needs&ownClock == 0 {
		e.clock = new(clock)
		e.clock.set(start + int64(e.seed%1_000_003))
		now = e.clock.now
	}
	e.harness = newStore(t, now)
	e.store = e.harness.Store
	if missing := r.needs.missing(e.harness, s); missing != "" {
		return missing, nil
	}
	if r.needs&second != 0 {
		e.second = e.harness.Second(t)
	}
	limit := watchdog
	if s.full {
		limit *= 10
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	e.ctx = ctx

	done := make(chan error, 1)
	go e.run(r.check, done)
	select {
	case err := <-done:
		return "", err
	case <-time.After(limit + time.Second):
		stacks := make([]byte, 1<<16)
		return "", fmt.Errorf("still running after %v\n%s", limit, stacks[:runtime.Stack(stacks, true)])
	}
}

// seedVar names the environment variable that makes random cases repeat a run.
const seedVar = "RATELIMIT_CONFORMANCE_SEED"

func seed() uint64 {
	if n, err := strconv.ParseUint(os.Getenv(seedVar), 10, 64); err == nil {
		return n
	}
	return uint64(rand.Uint32())
}

// env is what a check runs in: one goroutine's view of one harness.
type env struct {
	*suite
	ctx     context.Context
	harness Harness
	store   ratelimit.Store
	second  ratelimit.Store // nil unless the rule needs it
	clock   *clock          // nil if the store runs on its own
	rand    *rand.Rand
	seed    uint64
	prefix  string // of all keys, so that runs on one server do not meet
	keys    int
}

// violation is what fatalf throws.
type violation struct{ error }

// run sends how check fails, or nil.
func (e *env) run(check func(*env), done chan<- error) {
	err := errors.New("the case ended its goroutine")
	defer func() {
		if v := recover(); v != nil {
			failure, ok := v.(violation)
			if !ok {
				failure.error = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
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
			defer func() {
				if v := recover(); v != nil {
					errs[i] = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
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

// key returns a key that nothing else uses.
func (e *env) key() string {
	e.keys++
	return e.prefix + "-" + strconv.Itoa(e.keys)
}

// scale returns n, or more at full depth.
func (e *env) scale(n int) int {
	if e.full {
		n *= 100
	}
	return n
}

// start is where the clocks of the cases start: an instant in 2027 on no round microsecond.
const start = int64(1_800_000_000_123_457)

// clock is the injected clock.
type clock struct {
	us   atomic.Int64
	tick atomic.Int64 // how far every reading moves it
}

func (c *clock) now() int64                     { return c.us.Add(c.tick.Load()) }
func (c *clock) set(us int64)                   { c.us.Store(us) }
func (c *clock) add(d time.Duration)            { c.us.Add(d.Microseconds()) }
func (c *clock) after(t int64, d time.Duration) { c.us.Store(t + d.Microseconds()) }
