package breaker

import (
	"context"
	"errors"

	"github.com/sony/gobreaker/v2"

	"github.com/truewindow/ratelimit"
)

// What a call says about the store inside, as an error for gobreaker; nil: it has answered.
var (
	errFailure   = errors.New("breaker: the call failed")
	errNoVerdict = errors.New("breaker: the call tells nothing")
)

// judge returns what a call says, and learns from one that failed.
func (s *Store) judge(ctx context.Context, err error, op ratelimit.Op, res ratelimit.Result) error {
	verdict := verdictOn(ctx, err)
	if errors.Is(verdict, errFailure) {
		s.failures.Add(1)
		s.learn(op, res)
	}
	if err == nil && res.Source == ratelimit.SourceCache { // the server was not asked
		return errNoVerdict
	}
	return verdict
}

func (s *Store) judgeAll(ctx context.Context, err error, ds []ratelimit.Demand, out []ratelimit.Result) error {
	verdict := verdictOn(ctx, err)
	if errors.Is(verdict, errFailure) {
		s.failures.Add(1)
		for i := range ds {
			s.learn(ds[i].Op, out[i])
		}
	}
	return verdict
}

func verdictOn(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, ratelimit.ErrUnavailable),
		errors.Is(err, ratelimit.ErrCorruptState), errors.Is(err, ratelimit.ErrCapacity), errors.Is(err, ratelimit.ErrClosed),
		errors.Is(ctx.Err(), context.Canceled):
		return errNoVerdict
	}
	return errFailure
}

// learn remembers the policy that made res of a demand that failed.
func (s *Store) learn(op ratelimit.Op, res ratelimit.Result) {
	policy := ratelimit.Policy(0)
	switch {
	case res.Source == ratelimit.SourceOpen:
		policy = ratelimit.FailOpen
	case res.Source == ratelimit.SourceClosed && op > ratelimit.Force && s.proposed() != 0:
		return // so does every policy to what nobody waits for to pass
	case res.Source == ratelimit.SourceClosed:
		policy = ratelimit.FailClosed
	}
	if policy != s.proposed() {
		s.policy.Store(uint32(policy))
	}
}

// proposed returns the policy that failed calls were answered by.
func (s *Store) proposed() ratelimit.Policy { return ratelimit.Policy(s.policy.Load()) }

// troubled tells that there was a failure since the last success.
func (s *Store) troubled() bool { return s.trouble.Load()&1 != 0 }

// note tells the breaker of a call that was made without asking it.
func (s *Store) note(verdict error) {
	if !errors.Is(verdict, errFailure) {
		return
	}
	if s.State() == Closed { // one that comes after others have opened the breaker is none of the demand that it then lets through
		_, _ = s.breaker.Execute(func() (struct{}, error) { return struct{}{}, verdict })
	}
	s.worsen()
}

// through makes a call if the breaker lets it, or returns ErrOpen. call returns what it says.
func (s *Store) through(call func() error) error {
	var seen uint64
	_, verdict := s.breaker.Execute(func() (struct{}, error) {
		err := call()
		seen = s.trouble.Load()
		return struct{}{}, err
	})
	switch {
	case verdict == nil:
		s.relieve(seen)
	case errors.Is(verdict, errFailure):
		s.worsen()
	case errors.Is(verdict, gobreaker.ErrOpenState), errors.Is(verdict, gobreaker.ErrTooManyRequests):
		return s.refuse()
	}
	return nil
}

// worsen says that there is trouble. The breaker has been told before, so that relieve either sees what it was told or does nothing.
func (s *Store) worsen() {
	for {
		seen := s.trouble.Load()
		if s.trouble.CompareAndSwap(seen, (seen+2)|1) {
			return
		}
	}
}

// relieve says that there is no trouble, if the breaker has forgotten all failures and none came since seen.
func (s *Store) relieve(seen uint64) {
	if s.State() == Closed && s.breaker.Counts().ConsecutiveFailures == 0 {
		s.trouble.CompareAndSwap(seen, seen&^1)
	}
}
