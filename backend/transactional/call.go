package transactional

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// A call is one call of Take or TakeAll that waits for its results.
type call struct {
	demands []driver.Demand
	stored  []string // the keys of demands, as stored
	keys    []string // the same, sorted
	results []driver.Result
	err     error
	panic   any
	done    chan struct{}

	began, half time.Time // half of its time is over at half
	state       atomic.Int32
	taken       bool // guarded by the lane: it is in a group
	alone       bool // guarded by the lane: the transaction with other keys has failed
}

// The states of a call.
const (
	waiting   int32 = iota
	writing         // a transaction writes states for it
	answered        // its results, err or panic are set
	abandoned       // the caller no longer waits
)

func newCall(ctx context.Context, ds []driver.Demand, timeout time.Duration) *call {
	c := &call{demands: ds, results: make([]driver.Result, len(ds)),
		stored: make([]string, len(ds)), done: make(chan struct{}, 1), began: time.Now()}
	for i := range ds {
		c.stored[i] = ds[i].StoredKey()
		ds[i].Key = strings.Clone(ds[i].Key)
	}
	c.keys = slices.Sorted(slices.Values(c.stored))
	long := timeout
	if at, ok := ctx.Deadline(); ok {
		long = min(long, at.Sub(c.began))
	}
	c.half = c.began.Add(long / 2)
	return c
}

// wait waits until c is answered, ctx ends or the time is over. In the last two cases nothing is
// recorded for c, now or later, unless the error wraps [driver.ErrOutcomeUnknown]. Its transaction
// goes on: to cancel it would close a connection for each caller that gives up.
func (c *call) wait(ctx context.Context, timeout time.Duration) error {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	var when string
	var cause error
	select {
	case <-c.done:
		return c.outcome()
	case <-ctx.Done():
		when, cause = "in time", ctx.Err()
	case <-timer.C:
		when, cause = fmt.Sprint("within ", timeout), context.DeadlineExceeded
	}
	before := c.state.Swap(abandoned)
	if before == answered { // both at once: an answer is better than none
		<-c.done
		return c.outcome()
	}
	if before == writing {
		return fmt.Errorf("%w: no answer %s: %w", driver.ErrOutcomeUnknown, when, cause)
	}
	return fmt.Errorf("%w: not decided %s: %w", driver.ErrUnavailable, when, cause)
}

func (c *call) outcome() error {
	if c.panic != nil {
		panic(c.panic)
	}
	return c.err
}

// answer passes the outcome to the caller, if it still waits and has none.
func (c *call) answer(err error, panicked any) {
	if c.state.CompareAndSwap(waiting, answered) || c.state.CompareAndSwap(writing, answered) {
		c.err, c.panic = err, panicked
		c.done <- struct{}{}
	}
}
