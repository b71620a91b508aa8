package ratelimit

import (
	"context"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// maxShadows is how many calls of the shadow of a limiter may be in flight at the same time.
const maxShadows = 1000

// A ShadowPanicError is the Err of an [Observation] when the store or the algorithm of a shadow has
// panicked ([Limiter.WithShadow]).
type ShadowPanicError struct {
	Value any    // the value of the panic; it may hold the key
	Stack []byte // the stack, as [runtime/debug.Stack] returns it
}

// Error returns a text without the Value.
func (*ShadowPanicError) Error() string { return "ratelimit: the shadow has panicked" }

// shadow repeats the takes of one limiter on another.
type shadow struct {
	limiter *Limiter
	slots   chan struct{} // of its calls
	dropped atomic.Int64  // calls since the last observation
}

func newShadow(l *Limiter) *shadow {
	return &shadow{limiter: l, slots: make(chan struct{}, maxShadows)}
}

// askShadow starts the call of c on l's shadow, after l has decided it. It does not wait for the
// shadow.
func (l *Limiter) askShadow(ctx context.Context, c call, results []Result, err error) {
	if l.shadow == nil || c.op != driver.OpTake {
		return
	}
	select {
	case l.shadow.slots <- struct{}{}:
	default:
		l.shadow.dropped.Add(1)
		return
	}
	var answer []Result
	if err == nil {
		answer = slices.Clone(results)
	}
	c.key, c.wait = strings.Clone(c.key), false
	go func() {
		defer func() { <-l.shadow.slots }()
		l.shadow.compare(context.WithoutCancel(ctx), c, answer)
	}()
}

// compare makes a call, and reports it to the observer together with the answer that the caller
// got. It recovers from any panic, since no caller may depend on its shadow.
func (sh *shadow) compare(ctx context.Context, c call, answer []Result) {
	defer func() { _ = recover() }() // of the observer: there is nothing to report it to
	l := sh.limiter
	s := l.pool.Get().(*scratch)
	defer l.release(s)
	began := time.Now()
	err := l.askRecovered(ctx, c, s)
	if l.observe != nil {
		l.observe(ctx, Observation{
			Key: c.key, Op: c.op, N: c.n, Limits: l.limits, Results: s.results, Err: err,
			Elapsed: time.Since(began), Shadowed: answer, Dropped: sh.dropped.Swap(0),
		})
	}
}

// askRecovered is ask, and returns a panic as an error.
func (l *Limiter) askRecovered(ctx context.Context, c call, s *scratch) (err error) {
	defer func() {
		if value := recover(); value != nil {
			clear(s.results)
			err = &ShadowPanicError{value, debug.Stack()}
		}
	}()
	return l.ask(ctx, c, s)
}
