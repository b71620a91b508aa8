package soak

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/integration/faultproxy"
	"github.com/truewindow/ratelimit/internal/testkit/timed"
)

// A soakPlant is a bug that a soak has to catch.
type soakPlant struct {
	in    func(ratelimit.Store) ratelimit.Store
	clock bool   // it shows when the clock steps
	fault string // it shows in this fault, if not ""
}

// soakPlants are the bugs by their names in RATELIMIT_SOAK_PLANT.
var soakPlants = map[string]soakPlant{
	"double-record": {in: func(s ratelimit.Store) ratelimit.Store { return retrying{s} }},
	"stale-cache": {in: func(s ratelimit.Store) ratelimit.Store {
		return &stale{Store: s, refusals: map[driver.Demand]staleRefusal{}}
	}},
	"lost-settlement": {in: func(s ratelimit.Store) ratelimit.Store { return keeping{s} }},
	"dropped-settlement": {in: func(s ratelimit.Store) ratelimit.Store { return trusting{s} },
		fault: faultproxy.LoseRequests.String()},
	"double-settlement": {in: func(s ratelimit.Store) ratelimit.Store { return doubling{s} }},
	"lasting-hold":      {in: func(s ratelimit.Store) ratelimit.Store { return lasting{s} }},
	"clock-step": {in: func(s ratelimit.Store) ratelimit.Store { return unclamped{s} },
		clock: true},
}

// plant returns s with the task's bug, if any. Bugs of holds are planted only in stores without a
// cache: otherwise the cache check would find them first.
func (task soakTask) plant(s ratelimit.Store) ratelimit.Store {
	with := soakPlants[task.Plant].in
	if with == nil || task.Cached && (strings.Contains(task.Plant, "settlement") ||
		task.Plant == "lasting-hold") {
		return s
	}
	return with(s)
}

// retrying resends a demand of unknown outcome.
type retrying struct{ ratelimit.Store }

func (s retrying) Take(ctx context.Context, d driver.Demand) (ratelimit.Result, error) {
	res, err := s.Store.Take(ctx, d)
	if errors.Is(err, ratelimit.ErrOutcomeUnknown) {
		again, cancel := context.WithTimeout(context.WithoutCancel(ctx), soakTimeout)
		defer cancel()
		return s.Store.Take(again, d)
	}
	return res, err
}

// stale repeats refusals until their RetryAfter has passed, even if the state changes.
type stale struct {
	ratelimit.Store
	mu       sync.Mutex
	refusals map[driver.Demand]staleRefusal
}

type staleRefusal struct {
	ratelimit.Result
	at time.Time
}

func (s *stale) Take(ctx context.Context, d driver.Demand) (ratelimit.Result, error) {
	s.mu.Lock()
	refusal, ok := s.refusals[d]
	s.mu.Unlock()
	if passed := time.Since(refusal.at); ok && passed < refusal.RetryAfter {
		refusal.Source = ratelimit.SourceCache
		refusal.RetryAfter -= passed
		refusal.ResetAfter = max(0, refusal.ResetAfter-passed)
		return refusal.Result, nil
	}
	at := time.Now()
	res, err := s.Store.Take(ctx, d)
	if err == nil && d.Op == driver.OpTake && !res.Allowed &&
		res.Source == ratelimit.SourceStore {
		s.mu.Lock()
		s.refusals[d] = staleRefusal{res, at}
		s.mu.Unlock()
	}
	return res, err
}

// keeping pretends to settle.
type keeping struct{ ratelimit.Store }

func (s keeping) Take(ctx context.Context, d driver.Demand) (ratelimit.Result, error) {
	if d.Op != driver.OpSettle {
		return s.Store.Take(ctx, d)
	}
	return pretend(ctx, s.Store, d)
}

// pretend answers a settlement, and makes none.
func pretend(
	ctx context.Context, s ratelimit.Store, d driver.Demand,
) (ratelimit.Result, error) {
	n := d.N
	d.Op, d.N, d.ID = driver.OpPeek, 1, 0
	res, err := s.Take(ctx, d)
	if err == nil {
		res.Allowed, res.RetryAfter = true, 0
		if kind, _ := kindOf(d.Algorithm); kind != kindFlight {
			res.Units = n
		}
	}
	return res, err
}

// trusting takes a settlement that has failed, or whose answer is lost, for one that was made.
type trusting struct{ ratelimit.Store }

func (s trusting) Take(ctx context.Context, d driver.Demand) (ratelimit.Result, error) {
	res, err := s.Store.Take(ctx, d)
	if d.Op == driver.OpSettle && err != nil {
		again, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		return pretend(again, s.Store, d)
	}
	return res, err
}

// doubling records what is settled once more.
type doubling struct{ ratelimit.Store }

func (s doubling) Take(ctx context.Context, d driver.Demand) (ratelimit.Result, error) {
	res, err := s.Store.Take(ctx, d)
	if d.Op == driver.OpSettle && err == nil && res.Units > 0 {
		d.Op, d.ID = driver.OpForce, 0
		_, _ = s.Store.Take(ctx, d)
	}
	return res, err
}

// lasting holds for longer than the time-out.
type lasting struct{ ratelimit.Store }

func (s lasting) Take(ctx context.Context, d driver.Demand) (ratelimit.Result, error) {
	if _, timeout := kindOf(d.Algorithm); d.Op == driver.OpHold {
		d.HoldTimeout = 10 * timeout
	}
	return s.Store.Take(ctx, d)
}

// unclamped decides at the clock's time even if the newest stamp is ahead of it.
type unclamped struct{ ratelimit.Store }

func (s unclamped) Take(ctx context.Context, d driver.Demand) (ratelimit.Result, error) {
	if kind, _ := kindOf(d.Algorithm); kind == kindLog {
		d.Algorithm = timed.Of(unclampedLog{algorithm.SlidingLog(d.Algorithm.Limit())})
	}
	return s.Store.Take(ctx, d)
}

type unclampedLog struct{ algorithm.Log }

func (l unclampedLog) Script() driver.Script {
	script := l.Log.Script()
	const clamp = "if newest > now then"
	if strings.Count(script.Source, clamp) != 1 {
		panic("the log's script lacks the line to replace")
	}
	args := script.Args
	script.Name += " unclamped"
	script.Source = strings.Replace(script.Source, clamp, "if false then", 1)
	script.Args = func(dst []int64, d driver.Demand) []int64 {
		d.Algorithm = l.Log
		return args(dst, d)
	}
	return script
}
