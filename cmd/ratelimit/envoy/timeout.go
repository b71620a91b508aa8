package envoy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/layer"
)

// StoreTimeout is a timeout of calls of a store that fits into the 20ms for which Envoy waits by
// default. With a longer one Envoy has given up before on_failure can decide.
const StoreTimeout = 15 * time.Millisecond

// TimeoutSetting says which settings change how long calls of a store may take.
const TimeoutSetting = "REDIS_TIMEOUT, or timeout in the URL of --store"

// patient is the key of a value of contexts.
type patient struct{}

// Patient returns a context of calls whose callers wait longer than Envoy; see [NewTimely].
func Patient(ctx context.Context) context.Context {
	return context.WithValue(ctx, patient{}, true)
}

// A timely is a store with little time for calls that are not patient.
type timely struct {
	inside driver.Store
	timed  *layer.Timeout
	after  time.Duration
}

// NewTimely returns a store that gives calls no more time than after, except that those with a
// [Patient] context have as much as store gives them. Put it around a breaker, which does not count
// this timeout as a failure, but asks the server itself; and inside what decides locally. An error
// wraps [driver.ErrInvalid].
func NewTimely(store ratelimit.Store, after time.Duration) (ratelimit.Store, error) {
	timed, err := layer.NewTimeout(store, after)
	if err != nil {
		return nil, err
	}
	return &timely{store, timed, after}, nil
}

func (s *timely) Take(ctx context.Context, d driver.Demand) (driver.Result, error) {
	if ctx.Value(patient{}) != nil {
		return s.inside.Take(ctx, d)
	}
	res, err := s.timed.Take(ctx, d)
	return res, s.explain(ctx, err)
}

func (s *timely) TakeAll(ctx context.Context, ds []driver.Demand, out []driver.Result) error {
	if ctx.Value(patient{}) != nil {
		return s.inside.TakeAll(ctx, ds, out)
	}
	return s.explain(ctx, s.timed.TakeAll(ctx, ds, out))
}

// explain adds the timeout to the error of a call that it has ended.
func (s *timely) explain(ctx context.Context, err error) error {
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return fmt.Errorf("%w: calls over gRPC have %v", err, s.after)
	}
	return err
}

// WithSetting adds to what the log says of err which settings change the timeout, if it is one.
func WithSetting(err error, attrs ...any) []any {
	if errors.Is(err, context.DeadlineExceeded) {
		return append(attrs, "setting", TimeoutSetting)
	}
	return attrs
}
