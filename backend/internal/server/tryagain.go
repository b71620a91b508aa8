package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/truewindow/ratelimit/backend/lua"
	"github.com/truewindow/ratelimit/driver"
)

// While a slot moves from one server of a cluster to another, key by key, a server runs a script on
// several of its keys only if it has all of them. Otherwise it replies TRYAGAIN and runs nothing. A
// key without a state is on neither server until the whole slot has moved. A script on a single key
// always finds its server; a demand with holds has two.

const (
	firstPause   = time.Millisecond
	longestPause = 16 * time.Millisecond
)

// retryTryAgain calls retry until it no longer fails with TRYAGAIN. It gives up when a quarter of
// the time is left, and returns the error of the first call: a demand in flight at the deadline
// would have an unknown outcome.
func (e *executor) retryTryAgain(
	ctx context.Context, deadline time.Time, first error, retry func(context.Context) error,
) error {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	deadline, _ = ctx.Deadline()
	latest := deadline.Add(-time.Until(deadline) / 4)
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		if err := retry(ctx); !e.isTryAgain(err) {
			return err
		}
		if time.Now().Add(pause).After(latest) {
			return first
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", first, ctx.Err())
		case <-time.After(pause):
		}
	}
}

// createKeys creates those of the keys of ds that do not exist, so that they can move.
func (e *executor) createKeys(ctx context.Context, keys []string, ds []driver.Demand) error {
	create := func(program lua.Program, key string) error {
		_, err := e.runScript(ctx, program, key)
		return err
	}
	for i, key := range keys {
		var err error
		switch script := ds[i].Algorithm.Script(); {
		case script.HoldsOnly:
			err = create(createHoldsProgram, key)
		case script.Holds:
			err = errors.Join(create(createProgram, key),
				create(createHoldsProgram, key+lua.HoldsSuffix))
		default:
			err = create(createProgram, key)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// createProgram writes an empty state, which means the same as none, if the key does not exist. It
// expires after a second.
var createProgram = newProgram("redis.call('SET', KEYS[1], '', 'PX', 1000, 'NX') return ''")

// createHoldsProgram does the same for holds, with a field that is neither the head nor a hold.
var createHoldsProgram = newProgram(`
if not redis.call('HGET', KEYS[1], '') then
  redis.call('HSET', KEYS[1], '-', '')
  redis.call('PEXPIRE', KEYS[1], 1000)
end
return ''`)
