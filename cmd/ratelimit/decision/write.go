package decision

import (
	"context"
	"slices"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
	"github.com/truewindow/ratelimit/driver"
)

// Force records units of a key under a limit, whether they fit or not. The limit has to record
// units: blocks and calls in flight do not. Errors are [ErrUnknownLimit], in a [RequestError], and
// those of [ratelimit.Limiter.Force].
func (d *Decider) Force(
	ctx context.Context, limit, key string, n int64,
) (ratelimit.Result, error) {
	f, v, err := d.variant(limit, key)
	if err != nil {
		return ratelimit.Result{}, err
	}
	return f.limiters[v.Number].Force(ctx, key, n)
}

// Block blocks a key for ms milliseconds under a limit, which is a block. No policy applies. Errors
// are as those of Force.
func (d *Decider) Block(
	ctx context.Context, limit, key string, ms int64,
) (ratelimit.Result, error) {
	_, v, err := d.variant(limit, key)
	if err != nil {
		return ratelimit.Result{}, err
	}
	l, err := ratelimit.New(d.store, v.Algorithm)
	if err != nil {
		return ratelimit.Result{}, err
	}
	return l.Force(ctx, key, ms)
}

// Look returns what is left of a limit for a key. No policy applies, and nothing observes it: it is
// no decision. Errors are as those of Force.
func (d *Decider) Look(ctx context.Context, limit, key string) (ratelimit.Result, error) {
	_, v, err := d.variant(limit, key)
	if err != nil {
		return ratelimit.Result{}, err
	}
	l, err := ratelimit.New(d.store, v.Algorithm)
	if err != nil {
		return ratelimit.Result{}, err
	}
	return l.Peek(ctx, key)
}

// Reset deletes what is recorded and held for a key under limits. No policy applies. After an error
// a part of it may be deleted if there are more than [driver.MaxDemands]. Errors are as those of
// Force.
func (d *Decider) Reset(ctx context.Context, key string, limits ...string) error {
	var algorithms []ratelimit.Algorithm
	for _, limit := range limits {
		_, v, err := d.variant(limit, key)
		if err != nil {
			return err
		}
		algorithms = append(algorithms, v.Algorithm)
	}
	for some := range slices.Chunk(algorithms, driver.MaxDemands) {
		l, err := ratelimit.New(d.store, some...)
		if err != nil {
			return err
		}
		if err := l.WithObserver(d.observe).Reset(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

// Renew holds what held holds for another timeout, and then more units of its claims, which a limit
// may refuse: the results are nil without more. Errors are those of [ratelimit.Reservation.Renew]
// and of [ratelimit.Reservation.ExtendAll].
func Renew(
	ctx context.Context, held *ratelimit.Reservation, timeout time.Duration,
	more ...ratelimit.Claim,
) ([]ratelimit.Result, error) {
	if err := held.Renew(ctx, timeout); err != nil || len(more) == 0 {
		return nil, err
	}
	return held.ExtendAll(ctx, more...)
}

// variant returns the limit of a name with the rate of a key, and the set that has it.
func (d *Decider) variant(limit, key string) (*inForce, *rules.Variant, error) {
	f := d.current.Load()
	if f == nil {
		return nil, nil, ErrNoSet
	}
	if v := f.set.OfKey(limit, key); v != nil {
		return f, v, nil
	}
	return nil, nil, &RequestError{Limit: ratelimit.Limit{Name: limit}, Err: ErrUnknownLimit}
}
