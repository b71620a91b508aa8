package adaptertest

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/edge"
	"github.com/truewindow/ratelimit/internal/testkit/limittest"
)

// An end is how a call that was passed on ends.
type end int

const (
	succeed end = iota
	fail
	crash // a panic
	leave // the caller breaks off
)

// settleTime is how long a server may take to notice the end of a call.
const settleTime = 10 * time.Second

// A pausing service works until the test says how the call ends.
type pausing struct {
	begun chan struct{} // has an element for each call whose work has begun
	ends  chan end      // of the first call; the others succeed
}

func newPausing() *pausing {
	return &pausing{begun: make(chan struct{}, 100), ends: make(chan end, 1)}
}

func (p *pausing) work(ctx context.Context) error {
	first := len(p.begun) == 0
	p.begun <- struct{}{}
	if !first {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case how := <-p.ends:
		switch how {
		case fail:
			return errors.New("failed")
		case crash:
			panic("a crash that the test wants")
		}
		return nil
	}
}

// first makes the first call of a service, in a goroutine of its own, and returns a function that
// ends it.
func (e *try) first(call Call, p *pausing) (finish func(end) Answer) {
	e.Helper()
	ctx, cancel := context.WithCancel(e.Context())
	e.Cleanup(cancel)
	answer := make(chan Answer, 1)
	go func() { answer <- call(ctx, "word") }()
	deadline := time.After(settleTime)
	for len(p.begun) == 0 {
		select {
		case a := <-answer:
			e.Fatalf("the first call was not passed on: %+v", a)
		case <-deadline:
			e.Fatal("the first call was not passed on")
		case <-time.After(time.Millisecond):
		}
	}
	return func(how end) Answer {
		if how == leave {
			cancel()
		} else {
			p.ends <- how
		}
		select {
		case a := <-answer:
			return a
		case <-time.After(settleTime):
			e.Fatal("the first call does not end")
			return Answer{}
		}
	}
}

// eventually waits until a condition holds.
func (e *try) eventually(what string, holds func() bool) {
	e.Helper()
	for began := time.Now(); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > settleTime {
			e.Fatalf("%s after %v", what, settleTime)
		}
	}
}

// settling is a store that counts settlements.
type settling struct {
	driver.Store
	settled atomic.Int64
}

func (s *settling) Take(ctx context.Context, d driver.Demand) (driver.Result, error) {
	res, err := s.Store.Take(ctx, d)
	if err == nil && d.Op == driver.OpSettle {
		s.settled.Add(1)
	}
	return res, err
}

// checkBudget: while a call runs, its units are held. When it has ended, they count or not.
func checkBudget(e *try, how end, count int64) {
	store := &settling{Store: e.store}
	l := limittest.NewBudget(e, store, ratelimit.PerHour("budget", 1))
	p := newPausing()
	call := e.serve(Service{Choose: claims(l), Work: p.work, Counting: true})
	finish := e.first(call, p)
	held := call(e.Context(), "word")
	e.want(held, edge.Exceeded, 1)
	if a := finish(how); a.Reason != 0 || a.Failed != (how != succeed) {
		e.Errorf("got %+v", a)
	}
	e.eventually("the units are not settled", func() bool { return store.settled.Load() > 0 })
	e.recorded(l, count)
	if count > 0 {
		e.wantRefused(call(e.Context(), "word"), 1, time.Hour, "budget")
	} else {
		e.want(call(e.Context(), "word"), 0, 2)
	}
}

// checkInFlight: a second call is refused until the first has ended, however it ends.
func checkInFlight(e *try, how end) {
	l := limittest.NewInFlight(e, e.store, 1)
	p := newPausing()
	call := e.serve(Service{Choose: claims(l), Work: p.work})
	finish := e.first(call, p)
	a := call(e.Context(), "word")
	e.want(a, edge.Exceeded, 1)
	if a.RetryAfter <= 0 || a.RetryAfter > time.Second {
		e.Errorf("got RetryAfter %v of a limit of calls in flight, want a second at most",
			a.RetryAfter)
	}
	if a := finish(how); a.Reason != 0 || a.Failed != (how != succeed) {
		e.Errorf("got %+v", a)
	}
	e.eventually("the unit is not released", func() bool {
		return call(e.Context(), "word").Reason == 0
	})
}
