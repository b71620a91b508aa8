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

// NewRecorder returns a recorder of stores whose clock is now. A nil now is the store's own clock.
func NewRecorder(now func() int64) *Recorder {
	if now == nil {
		now = func() int64 { return 0 }
	}
	return &Recorder{now: now, begin: time.Now()}
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
		Client: s.client, Now: r.now(), Demands: slices.Clone(ds), Call: time.Since(r.begin),
	}
	err := call()
	op.Return = time.Since(r.begin)
	switch {
	case err == nil:
		op.Results = slices.Clone(out)
	case !errors.Is(err, driver.ErrOutcomeUnknown):
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history = append(r.history, op)
	return err
}
