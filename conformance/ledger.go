package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// lateAtMost is how long after its deadline a call may return, since a busy machine may delay it.
const lateAtMost = 5 * time.Second

// A ledger counts the outcomes of takes of one unit, as their callers saw them.
type ledger struct {
	done, unknown atomic.Int64
}

func (l *ledger) note(err error) error {
	switch {
	case err == nil:
		l.done.Add(1)
	case errors.Is(err, driver.ErrOutcomeUnknown):
		l.unknown.Add(1)
	case !errors.Is(err, driver.ErrUnavailable):
		return fmt.Errorf("the error is not ErrUnavailable: %w", err)
	}
	return nil
}

// wantRecorded checks the ledger of takes on a key against what is recorded.
func (e *env) wantRecorded(l *ledger, key string, a driver.Algorithm) {
	used := a.Limit().Max - e.awaitLeft(key, a)
	if low, high := l.done.Load(), l.done.Load()+l.unknown.Load(); used < low || used > high {
		e.fatalf("%d takes succeeded and the outcome of %d is unknown, but %d were recorded",
			low, high-low, used)
	}
}

// takeWithin takes a unit with a context that ends after within, and reports whether it was
// decided.
func (e *env) takeWithin(
	key string, a driver.Algorithm, within time.Duration, l *ledger,
) (decided bool, err error) {
	ctx, cancel := context.WithTimeout(e.ctx, within)
	defer cancel()
	ended := make(chan time.Time, 1)
	stop := context.AfterFunc(ctx, func() { ended <- time.Now() })
	_, err = e.store.Take(ctx, take(key, a, 1))
	if !stop() { // from the end of the context, which comes late if the machine stood still
		if late := time.Since(<-ended); late > lateAtMost {
			return false, fmt.Errorf("a call returned %v after its context had ended", late)
		}
	}
	return err == nil, l.note(err)
}

// arrival is how long an abandoned call may take to reach the server.
const arrival = 100 * time.Millisecond
