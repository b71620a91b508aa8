package breaker

import (
	"context"
	"errors"
	"fmt"

	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/deadline"
)

// The verdict of a call on the store inside, as an error for gobreaker. nil means that it answered.
var (
	errFailure   = errors.New("breaker: the call failed")
	errNoVerdict = errors.New("breaker: the call says nothing about the store")
	errAbandoned = fmt.Errorf("%w: the caller's context has ended", errNoVerdict)
)

var errPanic = fmt.Errorf("%w: the store panicked", driver.ErrUnavailable)

// verdictOn returns the verdict of a call that ended with results or err, and counts it if it
// failed. Results that are all from a cache do not show that the server answers.
func (s *Store) verdictOn(ctx context.Context, err error, results ...driver.Result) error {
	switch {
	case err == nil:
		for _, res := range results {
			if res.Source != driver.SourceCache {
				return nil
			}
		}
		return errNoVerdict
	case !driver.IsOutage(err), errors.Is(err, driver.ErrClosed):
		return errNoVerdict
	case deadline.Passed(ctx):
		return errAbandoned
	}
	return s.fail(err)
}

// fail counts a call that failed with err, and returns its verdict.
func (s *Store) fail(err error) error {
	s.failures.Add(1)
	s.lastFailure.Store(&err)
	return errFailure
}

// failing reports whether there was a failure since the last success.
func (s *Store) failing() bool { return s.failed.Load()&1 != 0 }

// guarded reports whether calls go through the breaker, which must count successes too while s is
// failing or peeking.
func (s *Store) guarded() bool { return s.failing() || s.peeks.Running() }

// noteFailure marks s as failing. The breaker has counted the failure before, so noteSuccess either
// sees that count or does nothing.
func (s *Store) noteFailure() {
	for {
		seen := s.failed.Load()
		if s.failed.CompareAndSwap(seen, (seen+2)|1) {
			return
		}
	}
}

// noteSuccess marks s as not failing, if the breaker counts no failures and none came after seen, a
// value of s.failed.
func (s *Store) noteSuccess(seen uint64) {
	if s.State() == Closed && s.breaker.Counts().ConsecutiveFailures == 0 {
		s.failed.CompareAndSwap(seen, seen&^1)
	}
}
