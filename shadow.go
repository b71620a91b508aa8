package ratelimit

import (
	"context"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// maxShadows is how many calls of a limiter may wait for its shadow at the same time.
const maxShadows = 1000

// A ShadowPanicError is the Err of an [Observation] when the store or the algorithm of a shadow has
// panicked ([Limiter.WithShadow]).
type ShadowPanicError struct {
	Value any    // of the panic; it may hold the key
	Stack []byte // as of [runtime/debug.Stack]
}

// Error says that a shadow has panicked. It does not have the Value.
func (*ShadowPanicError) Error() string { return "ratelimit: the shadow has panicked" }

// shadow asks a limiter what another one is asked.
type shadow struct {
	compare func(context.Context, call, <-chan []Result)
	slots   chan struct{} // of its calls
}

func newShadow(compare func(context.Context, call, <-chan []Result)) *shadow {
	return &shadow{compare, make(chan struct{}, maxShadows)}
}

// shadowed asks the shadow what c asks, and returns a function that tells it l's answer.
func (l *Limiter) shadowed(ctx context.Context, c call) (tell func([]Result, error)) {
	if l.shadow == nil || c.op != OpTake {
		return func([]Result, error) {}
	}
	select {
	case l.shadow.slots <- struct{}{}:
	default:
		return func([]Result, error) {}
	}
	answers := make(chan []Result, 1)
	c.key, c.wait = strings.Clone(c.key), false
	go func() {
		defer func() { <-l.shadow.slots }()
		l.shadow.compare(context.WithoutCancel(ctx), c, answers)
	}()
	return func(results []Result, err error) {
		if err != nil {
			results = nil
		}
		answers <- slices.Clone(results)
	}
}

// compare makes a call, waits for the answer that the caller got, and tells the observer both. No
// panic ends the process, which does not depend on the shadow.
func (l *Limiter) compare(ctx context.Context, c call, answers <-chan []Result) {
	defer func() { _ = recover() }() // of the observer: there is nobody to tell
	s := l.pool.Get().(*scratch)
	defer l.release(s)
	began := time.Now()
	err := l.askRecovered(ctx, c, s)
	elapsed := time.Since(began)
	if answer := <-answers; l.observe != nil {
		l.observe(ctx, Observation{
			Key: c.key, Op: c.op, N: c.n, Limits: l.limits, Results: s.results, Err: err,
			Elapsed: elapsed, Shadowed: answer,
		})
	}
}

// askRecovered is ask with a panic as an error.
func (l *Limiter) askRecovered(ctx context.Context, c call, s *scratch) (err error) {
	defer func() {
		if value := recover(); value != nil {
			clear(s.results)
			err = &ShadowPanicError{value, debug.Stack()}
		}
	}()
	return l.ask(ctx, c, s)
}
