package ratelimit_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

// naiveLog is the exact log written for clarity: 16 bytes a record, all of them read and written by
// every step.
type naiveLog struct{ limit ratelimit.Limit }

func (a naiveLog) Name() string           { return "naive" }
func (a naiveLog) Limit() ratelimit.Limit { return a.limit }
func (a naiveLog) Validate() error        { return a.limit.Validate() }
func (a naiveLog) Script() driver.Script  { return driver.Script{} }

type record struct{ stamp, units int64 }

func (a naiveLog) Step(
	state []byte, now int64, d driver.Demand,
) ([]byte, time.Duration, ratelimit.Result) {
	if len(state)%16 != 0 {
		return nil, -1, ratelimit.Result{}
	}
	window := a.limit.Window.Microseconds()
	var log []record
	var used int64
	for b := state; len(b) > 0; b = b[16:] {
		r := record{int64(binary.BigEndian.Uint64(b)), int64(binary.BigEndian.Uint64(b[8:]))}
		if r.stamp > now-window {
			log = append(log, r)
			used += r.units
		}
	}
	res := ratelimit.Result{Allowed: true, Limit: a.limit}
	written := true
	switch d.Op {
	case driver.OpTake, driver.OpPeek:
		free := a.limit.Max - used
		for _, r := range log {
			if d.N <= free {
				break
			}
			res.Allowed, res.RetryAfter = false, time.Duration(r.stamp+window-now)*time.Microsecond
			free += r.units
		}
		written = d.Op == driver.OpTake && res.Allowed
		if written {
			log, used = append(log, record{now, d.N}), used+d.N
		}
	case driver.OpForce:
		log, used = append(log, record{now, d.N}), used+d.N
	case driver.OpReset:
		log, used = nil, 0
	}
	res.Remaining = max(0, a.limit.Max-used)
	if len(log) > 0 {
		res.ResetAfter = time.Duration(log[len(log)-1].stamp+window-now) * time.Microsecond
	}
	if !written {
		return state, 0, res
	}
	next := make([]byte, 0, 16*len(log))
	for _, r := range log {
		next = binary.BigEndian.AppendUint64(next, uint64(r.stamp))
		next = binary.BigEndian.AppendUint64(next, uint64(r.units))
	}
	return next, max(res.ResetAfter, time.Microsecond), res
}

// mapStore keeps states in a map and never forgets one. Its clock is time.Now unless now is set.
type mapStore struct {
	now func() int64
	err error // answers every valid call, or the next errs calls if that is not 0

	errs    int
	decides bool // although err is returned

	mu     sync.Mutex
	states map[[3]string][]byte
	calls  []string // "take 1" and the like: what passed validation
}

func (s *mapStore) Take(ctx context.Context, d driver.Demand) (ratelimit.Result, error) {
	if err := driver.CheckTake(ctx, d); err != nil {
		return ratelimit.Result{}, err
	}
	var out [1]ratelimit.Result
	err := s.run("one", []driver.Demand{d}, out[:])
	return out[0], err
}

func (s *mapStore) TakeAll(
	ctx context.Context, ds []driver.Demand, out []ratelimit.Result,
) error {
	if err := driver.CheckTakeAll(ctx, ds, out); err != nil {
		return err
	}
	return s.run("all", ds, out)
}

func (s *mapStore) run(call string, ds []driver.Demand, out []ratelimit.Result) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, call+" "+ds[0].Op.String())
	failed := s.err
	if s.errs > 0 {
		if s.errs--; s.errs == 0 {
			s.err = nil
		}
	}
	if failed != nil && !s.decides {
		return failed
	}
	now := time.Now().UnixMicro()
	if s.now != nil {
		now = s.now()
	}
	allowed := true
	for i, d := range ds {
		_, _, out[i] = d.Peek(bytes.Clone(s.states[stateOf(d)]), now)
		allowed = allowed && out[i].Allowed
	}
	if !allowed {
		return failed
	}
	if s.states == nil {
		s.states = make(map[[3]string][]byte)
	}
	for i, d := range driver.Grant(ds, out) {
		next, keep, res := d.Step(s.states[stateOf(d)], now)
		if keep > 0 {
			s.states[stateOf(d)] = next
		}
		out[i] = res
	}
	return failed
}

// made returns the calls that passed validation since made was last called.
func (s *mapStore) made() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = nil
	return calls
}

func stateOf(d driver.Demand) [3]string {
	return [3]string{d.Key, d.Algorithm.Limit().Name, d.Algorithm.Name()}
}

// clock is a settable clock in microseconds.
type clock struct{ micros int64 }

func newClock() *clock                   { return &clock{micros: 1_800_000_000_000_000} }
func (c *clock) now() int64              { return c.micros }
func (c *clock) advance(d time.Duration) { c.micros += d.Microseconds() }

func newLimiter(t testing.TB, store ratelimit.Store, limits ...ratelimit.Limit) *ratelimit.Limiter {
	t.Helper()
	algorithms := make([]ratelimit.Algorithm, len(limits))
	for i, l := range limits {
		algorithms[i] = naiveLog{l}
	}
	limiter, err := ratelimit.New(store, algorithms...)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return limiter
}

// newBudgets is newLimiter for limits with holds.
func newBudgets(t testing.TB, store ratelimit.Store, limits ...ratelimit.Limit) *ratelimit.Limiter {
	t.Helper()
	algorithms := make([]ratelimit.Algorithm, len(limits))
	for i, l := range limits {
		algorithms[i] = algorithm.Budget(naiveLog{l})
	}
	limiter, err := ratelimit.New(store, algorithms...)
	noErr(t, err)
	return limiter
}

// newCalls returns a limiter of most calls in flight.
func newCalls(t testing.TB, store ratelimit.Store, most int64) *ratelimit.Limiter {
	t.Helper()
	calls, err := ratelimit.New(store, algorithm.InFlight("calls", most))
	noErr(t, err)
	return calls
}

func noErr(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// claim is a claim of n units of the key "k".
func claim(l *ratelimit.Limiter, n int64) ratelimit.Claim {
	return ratelimit.Claim{Limiter: l, Key: "k", N: n}
}

func wantErr(t *testing.T, err error, want ...error) {
	t.Helper()
	for _, w := range want {
		if !errors.Is(err, w) {
			t.Errorf("error is %v, want one that wraps %v", err, w)
		}
	}
}

func wantCalls(t *testing.T, s *mapStore, want ...string) {
	t.Helper()
	if got := s.made(); !slices.Equal(got, want) {
		t.Errorf("calls that reached the store's state: %q, want %q", got, want)
	}
}
