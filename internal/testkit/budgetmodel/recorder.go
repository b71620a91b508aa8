package budgetmodel

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/truewindow/ratelimit/conformance"
	"github.com/truewindow/ratelimit/driver"
)

// A Recorder records the calls of stores, for package conformance/linear to check.
type Recorder struct {
	now   func() int64
	begin time.Time

	still   sync.RWMutex // held for reading during calls
	mu      sync.Mutex
	history []conformance.Operation
}

// Still calls f while no call is made, so that f may change the clock.
func (r *Recorder) Still(f func()) {
	r.still.Lock()
	defer r.still.Unlock()
	f()
}

// NewRecorder returns a recorder of stores whose clock is now. If now is nil, no unit may leave a
// window and no hold may time out: the recorded calls are on a clock that stands still, and have
// results without times.
func NewRecorder(now func() int64) *Recorder { return &Recorder{now: now, begin: time.Now()} }

// timeless is an algorithm whose results have no times.
type timeless struct{ driver.Algorithm }

func (a timeless) Step(
	state []byte, now int64, d driver.Demand,
) (next []byte, keep time.Duration, res driver.Result) {
	d.Algorithm = a.Algorithm
	next, keep, res = a.Algorithm.Step(state, now, d)
	return next, keep, withoutTimes(res)
}

func withoutTimes(res driver.Result) driver.Result {
	return driver.Result{Allowed: res.Allowed, Limit: res.Limit, Remaining: res.Remaining,
		Units: res.Units}
}

func forgetTimes(op *conformance.Operation) {
	op.Now = 1
	for i := range op.Demands {
		op.Demands[i].Algorithm = timeless{op.Demands[i].Algorithm}
	}
	for i := range op.Results {
		op.Results[i] = withoutTimes(op.Results[i])
	}
}

// History returns the recorded calls. A call of unknown outcome has no results. Calls whose error
// says that nothing was recorded are omitted.
func (r *Recorder) History() []conformance.Operation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.history)
}

// Store returns a store that forwards to s and records its calls as those of client.
func (r *Recorder) Store(client int, s driver.Store) driver.Store {
	return &recorded{r, client, s}
}

type recorded struct {
	recorder *Recorder
	client   int
	store    driver.Store
}

func (s *recorded) Take(ctx context.Context, d driver.Demand) (driver.Result, error) {
	out := make([]driver.Result, 1)
	err := s.record([]driver.Demand{d}, out, func() (err error) {
		out[0], err = s.store.Take(ctx, d)
		return err
	})
	return out[0], err
}

func (s *recorded) TakeAll(
	ctx context.Context, ds []driver.Demand, out []driver.Result,
) error {
	return s.record(ds, out, func() error { return s.store.TakeAll(ctx, ds, out) })
}

func (s *recorded) record(ds []driver.Demand, out []driver.Result, call func() error) error {
	r := s.recorder
	r.still.RLock()
	defer r.still.RUnlock()
	op := conformance.Operation{
		Client: s.client, Demands: slices.Clone(ds), Call: time.Since(r.begin),
	}
	if r.now != nil {
		op.Now = r.now()
	}
	err := call()
	op.Return = time.Since(r.begin)
	switch {
	case err == nil:
		op.Results = slices.Clone(out)
	case !errors.Is(err, driver.ErrOutcomeUnknown):
		return err
	}
	if r.now == nil {
		forgetTimes(&op)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history = append(r.history, op)
	return err
}
