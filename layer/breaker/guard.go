package breaker

import (
	"context"
	"errors"

	"github.com/sony/gobreaker/v2"

	"github.com/truewindow/ratelimit/driver"
)

// abandon counts a call for d that its caller abandoned, and peeks to get a verdict instead.
func (s *Store) abandon(d driver.Demand) {
	s.abandoned.Add(1)
	s.peeks.Go(func() { s.peek(d) })
}

// note passes the breaker the verdict of a call for d that did not go through it.
func (s *Store) note(d driver.Demand, verdict error) {
	switch {
	case errors.Is(verdict, errAbandoned):
		s.abandon(d)
		return
	case !errors.Is(verdict, errFailure):
		return
	}
	if s.State() == Closed { // in a half-open breaker it would count as the failure of the trial
		_, _ = s.breaker.Execute(func() (struct{}, error) { return struct{}{}, verdict })
	}
	s.noteFailure()
}

// execute makes a call for d through the breaker, or returns ErrOpen. call returns its verdict.
func (s *Store) execute(d driver.Demand, call func() error) error {
	if s.pausing() {
		return s.refuse()
	}
	var seen uint64
	_, verdict := s.breaker.Execute(func() (struct{}, error) {
		err := call()
		seen = s.failed.Load()
		return struct{}{}, err
	})
	switch {
	case verdict == nil:
		s.abandoned.Store(0)
		s.noteSuccess(seen)
	case errors.Is(verdict, errFailure):
		s.noteFailure()
	case errors.Is(verdict, errAbandoned):
		s.abandon(d) // now: while a trial is in flight the breaker would refuse the peek
	case errors.Is(verdict, gobreaker.ErrOpenState),
		errors.Is(verdict, gobreaker.ErrTooManyRequests):
		return s.refuse()
	}
	return nil
}

// peek peeks at d's state in the store inside. It has no caller, so it ends at the store's own
// timeout. It follows a call whose caller allowed less time than that: such a call does not show
// whether the store is only slow or does not answer at all. A peek that fails counts as one
// failure. If the store answered nothing between an earlier failure and the end of the peek, the
// peek counts as one failure for the call that caused it, and one for each call that was abandoned
// during it. If a call was answered, it does not: one slow answer is not an outage.
func (s *Store) peek(d driver.Demand) {
	repeated := s.failing()
	s.abandoned.Store(1)
	d = driver.Demand{Key: d.Key, Algorithm: d.Algorithm, Op: driver.OpPeek, N: 1}
	var verdict error
	refused := s.execute(d, func() error {
		verdict = s.peekInside(d)
		return verdict
	})
	if refused != nil || !errors.Is(verdict, errFailure) || !repeated {
		return
	}
	for range s.abandoned.Load() - 1 {
		if s.State() != Closed {
			return
		}
		s.note(d, errFailure)
	}
}

// peekInside calls the store inside for peek and returns the verdict. A panic is a failure: in
// calls it reaches the callers, but here it would end the program.
func (s *Store) peekInside(d driver.Demand) (verdict error) {
	defer func() {
		if recover() != nil { // the value may have the key
			verdict = s.fail(errPanic)
		}
	}()
	ctx := context.Background()
	res, err := s.inner.Take(ctx, d)
	return s.verdictOn(ctx, err, res)
}
