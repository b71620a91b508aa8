package conformance

import (
	"context"
	crand "crypto/rand"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"
)

// beforeDeadline is how long before the deadline of the test binary a case fails that does not end.
const beforeDeadline = 5 * time.Second

// try runs one rule. It returns why the rule was skipped, or how it was broken.
func (s *suite) try(t testing.TB, newStore NewStore, r rule) (skipped string, err error) {
	t.Helper()
	if reason, ok := s.excepted(r); ok {
		return "excepted: " + reason, nil
	}
	e := &env{suite: s, prefix: crand.Text()[:12], seed: seed()}
	e.rand = rand.New(rand.NewPCG(e.seed, 0))
	var now func() int64
	if r.needs&ownClock == 0 {
		e.clock = new(clock)
		e.clock.set(begin(e.seed))
		now = e.clock.now
	}
	e.harness = newStore(t, now)
	e.store = e.harness.Store
	if missing := r.needs.missing(e.harness, s); missing != "" {
		return missing, nil
	}
	if r.needs&second != 0 {
		e.second = e.harness.Second(t)
	}
	limit := watchdog
	if s.full {
		limit *= 10
	}
	if !s.deadline.IsZero() {
		limit = min(limit, time.Until(s.deadline)-beforeDeadline)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	e.ctx = ctx

	done := make(chan error, 1)
	go e.run(r.check, done)
	select {
	case err := <-done:
		return "", err
	case <-time.After(limit + time.Second):
		stacks := make([]byte, 1<<16)
		return "",
			fmt.Errorf("still running after %v\n%s", limit, stacks[:runtime.Stack(stacks, true)])
	}
}

// seedVar names the environment variable that makes random cases repeat a run.
const seedVar = "RATELIMIT_CONFORMANCE_SEED"

func seed() uint64 {
	if n, err := strconv.ParseUint(os.Getenv(seedVar), 10, 64); err == nil {
		return n
	}
	return uint64(rand.Uint32())
}

// excepted returns the reason for which r is not tried.
func (s *suite) excepted(r rule) (reason string, ok bool) {
	if reason, ok = s.except[r.name]; !ok {
		reason, ok = s.except[r.group()]
	}
	return reason, ok
}
