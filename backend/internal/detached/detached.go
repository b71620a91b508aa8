// Package detached runs calls of a client library that may hang.
package detached

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// Calls bounds the calls that go on although their callers no longer wait. Set the fields before
// the first call.
type Calls struct {
	Max    int64  // number of abandoned calls at which new ones fail
	Prefix string // of errors

	abandoned atomic.Int64
	refused   atomic.Int64
}

// Abandoned returns the number of calls that go on although their callers no longer wait.
func (c *Calls) Abandoned() int64 { return c.abandoned.Load() }

// Refused returns how many calls were not begun because there were Max abandoned ones.
func (c *Calls) Refused() int64 { return c.refused.Load() }

// Full returns the error of [Do] if there are Max abandoned calls, and counts it as Refused.
func (c *Calls) Full() error {
	if c.abandoned.Load() < c.Max {
		return nil
	}
	c.refused.Add(1)
	return fmt.Errorf("%s: %w: the client has not ended %d abandoned calls",
		c.Prefix, driver.ErrUnavailable, c.Max)
}

// Do runs call in a goroutine of its own and returns what it returns, or an error that wraps
// [driver.ErrUnavailable] when ctx ends, after timeout, or if there are Max abandoned calls. A
// panic of call is passed on, unless the caller no longer waits.
func Do[T any](
	ctx context.Context, c *Calls, timeout time.Duration, call func(context.Context) (T, error),
) (T, error) {
	var none T
	if err := c.Full(); err != nil {
		return none, err
	}
	within, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	done := make(chan outcome[T], 1)
	go func() {
		o := outcome[T]{panicked: true}
		defer func() {
			if o.panicked {
				o.panic = recover()
			}
			done <- o
		}()
		o.value, o.err = call(within)
		o.panicked = false
	}()
	select {
	case o := <-done:
		return o.result()
	case <-within.Done():
	}
	select {
	case o := <-done: // both at once
		return o.result()
	default:
	}
	c.abandoned.Add(1)
	go func() {
		<-done
		c.abandoned.Add(-1)
	}()
	when, cause := "in time", ctx.Err()
	if cause == nil {
		when, cause = fmt.Sprint("within ", timeout), within.Err()
	}
	return none,
		fmt.Errorf("%s: %w: no answer %s: %w", c.Prefix, driver.ErrUnavailable, when, cause)
}

type outcome[T any] struct {
	value    T
	err      error
	panicked bool
	panic    any
}

func (o outcome[T]) result() (T, error) {
	if o.panicked {
		panic(o.panic)
	}
	return o.value, o.err
}
