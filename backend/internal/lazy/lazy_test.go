package lazy

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
)

var take = driver.Demand{
	Key: "k", N: 1, Algorithm: algorithm.SlidingLog(driver.PerMinute("minute", 10)),
}

// inner is a store that admits everything until it is closed.
type inner struct{ closed atomic.Bool }

func (s *inner) Take(ctx context.Context, d driver.Demand) (driver.Result, error) {
	var out [1]driver.Result
	err := s.TakeAll(ctx, []driver.Demand{d}, out[:])
	return out[0], err
}

func (s *inner) TakeAll(_ context.Context, _ []driver.Demand, out []driver.Result) error {
	if s.closed.Load() {
		return driver.ErrClosed
	}
	for i := range out {
		out[i].Allowed = true
	}
	return nil
}

func (s *inner) Probe(context.Context) (serverstore.Server, error) {
	return serverstore.Server{Name: "inner"}, nil
}

func (s *inner) Stats() serverstore.Stats { return serverstore.Stats{MaxQueued: 1} }

func (s *inner) Close() error {
	s.closed.Store(true)
	return nil
}

var errAway = fmt.Errorf("%w: connection refused", driver.ErrUnavailable)

const timeout = 100 * time.Millisecond

// ask makes one call of each kind, and returns an error if a result differs from want.
func ask(ctx context.Context, s *Store, want error) error {
	res, err := s.Take(ctx, take)
	if !errors.Is(err, want) || res.Allowed != (want == nil) {
		return fmt.Errorf("take: %+v, %w", res, err)
	}
	var out [1]driver.Result
	err = s.TakeAll(ctx, []driver.Demand{take}, out[:])
	if !errors.Is(err, want) || out[0].Allowed != (want == nil) {
		return fmt.Errorf("TakeAll: %+v, %w", out, err)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	server, err := s.Probe(ctx)
	if !errors.Is(err, want) || (server.Name == "inner") != (want == nil) {
		return fmt.Errorf("probe: %+v, %w", server, err)
	}
	if opened := s.Stats().MaxQueued == 1; opened != (want == nil) {
		return fmt.Errorf("stats: %+v", s.Stats())
	}
	return nil
}

// TestOpenAgain: while the server is unavailable, calls fail at once with the error of the last
// attempt. When it has recovered, the store is opened.
func TestOpenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const failures = 3
		attempts := 0
		s := Open(func() (Inner, error) {
			if attempts++; attempts <= failures {
				return nil, errAway
			}
			return new(inner), nil
		}, timeout)
		defer s.Close()
		began := time.Now()
		for time.Since(began) < failures*pause-1 {
			if err := ask(t.Context(), s, errAway); err != nil {
				t.Error(err)
			}
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(pause)
		if err := ask(t.Context(), s, nil); err != nil || attempts != failures+1 {
			t.Errorf("%v, after %d attempts", err, attempts)
		}
	})
}

// TestFirstAttempt: calls wait for the first attempt, up to their timeout.
func TestFirstAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := Open(func() (Inner, error) {
			time.Sleep(4*timeout - 1)
			return new(inner), nil
		}, timeout)
		defer s.Close()
		began := time.Now()
		if err := ask(t.Context(), s, driver.ErrUnavailable); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != 3*timeout {
			t.Errorf("three calls took %v", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), timeout/2)
		defer cancel()
		if _, err := s.Take(ctx, take); !errors.Is(err, driver.ErrUnavailable) ||
			!errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		_, err := s.Take(t.Context(), driver.Demand{})
		if !errors.Is(err, driver.ErrInvalid) {
			t.Error(err)
		}
		err = s.TakeAll(t.Context(), []driver.Demand{{}}, make([]driver.Result, 1))
		if !errors.Is(err, driver.ErrInvalid) {
			t.Error(err)
		}
		if err := ask(t.Context(), s, nil); err != nil { // it waits for the rest of the attempt
			t.Error(err)
		}
	})
}

// TestClose: a store that was closed makes no more attempts, and closes what an attempt still
// opens.
func TestClose(t *testing.T) {
	for name, tt := range map[string]struct {
		attempt time.Duration
		err     error
		after   time.Duration // when it is closed
	}{
		"away":       {err: errAway, after: 10*pause + pause/2},
		"connecting": {attempt: time.Second},
		"connected":  {after: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var opened inner
				var attempts atomic.Int64
				s := Open(func() (Inner, error) {
					attempts.Add(1)
					if time.Sleep(tt.attempt); tt.err != nil {
						return nil, tt.err
					}
					return &opened, nil
				}, timeout)
				time.Sleep(tt.after)
				for range 2 {
					if err := s.Close(); err != nil {
						t.Error(err)
					}
				}
				before := attempts.Load()
				if _, err := s.Take(t.Context(), take); !errors.Is(err, driver.ErrClosed) {
					t.Error(err)
				}
				time.Sleep(time.Minute)
				if n := attempts.Load(); n > max(before, 1) ||
					opened.closed.Load() != (tt.err == nil) {
					t.Errorf("%d attempts after %d, closed: %t", n, before, opened.closed.Load())
				}
			})
		})
	}
}
