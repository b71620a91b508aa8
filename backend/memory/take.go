package memorystore

import (
	"context"
	"hash/maphash"
	"time"

	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/direct"
	"github.com/truewindow/ratelimit/internal/longkey"
)

// Take decides one demand. Errors are those of [driver.CheckTake], [driver.ErrCapacity],
// [driver.ErrCorruptState] and [driver.ErrClosed].
func (s *Store) Take(ctx context.Context, d driver.Demand) (res driver.Result, err error) {
	if d.ID != 0 || d.At != 0 || d.Least != 0 { // which TakeFields does not have
		ds, out := [1]driver.Demand{d}, [1]driver.Result{}
		err = s.TakeAll(ctx, ds[:], out[:])
		return out[0], err
	}
	res.Allowed, res.Source, res.Remaining, res.RetryAfter, res.ResetAfter, err =
		(*taker)(s).TakeFields(ctx, d.Key, d.Algorithm, d.Op, d.N)
	if err == nil {
		res.Limit, res.Units = d.Algorithm.Limit(), driver.Taken(d.Op, d.N, res.Allowed)
	}
	return res, err
}

// Direct returns a Taker of s if outer is s itself.
func (s *Store) Direct(outer driver.Store) direct.Taker {
	if outer == driver.Store(s) {
		return (*taker)(s)
	}
	return nil
}

// taker is the direct form of a Store.
type taker Store

// TakeFields is Take with the fields of the demand and the result one by one, which fit registers.
func (t *taker) TakeFields(
	ctx context.Context, key string, a driver.Algorithm, op driver.Op, n int64,
) (
	allowed bool, source driver.Source, remaining int64,
	retryAfter, resetAfter time.Duration, err error,
) {
	s := (*Store)(t)
	if ctx.Err() != nil {
		return failed(driver.CheckTake(ctx, driver.Demand{})) // the error of an ended context
	}
	if len(key) > longkey.Max {
		key = longkey.Shorten(key)
	}
	hash := maphash.String(s.seed, key)
	sh := s.shard(hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	known := &sh.last
	if a != known.algorithm {
		known = sh.known(a)
	}
	if known == nil || op > driver.OpPeek || n < 1 || n > known.max || key == "" {
		d := driver.Demand{Key: key, Algorithm: a, Op: op, N: n}
		// Not ctx: it was checked above, and may have ended since.
		if err := driver.CheckTake(context.Background(), d); err != nil {
			return failed(err)
		}
	}
	if s.closed.Load() {
		return failed(driver.ErrClosed)
	}
	now := s.now()
	id := sh.find(hash, key, a, known)
	decides := fieldStepperOf(a)
	if id == none || decides == nil {
		d := driver.Demand{Key: key, Algorithm: a, Op: op, N: n}
		return fieldsOf(s.takeAny(sh, hash, id, now, d))
	}
	var next []byte
	var keep time.Duration
	next, keep, allowed, remaining, retryAfter, resetAfter =
		decides.Decide(sh.entries.at(id).state, now, op, n, 0)
	if keep > 0 {
		sh.store(id, next, now, keep)
	} else if keep < 0 {
		return failed(driver.ErrCorruptState)
	}
	return allowed, driver.SourceStore, remaining, retryAfter, resetAfter, nil
}

// fieldsOf returns the fields of a result.
func fieldsOf(res driver.Result, err error) (
	allowed bool, source driver.Source, remaining int64,
	retryAfter, resetAfter time.Duration, _ error,
) {
	return res.Allowed, res.Source, res.Remaining, res.RetryAfter, res.ResetAfter, err
}

func failed(err error) (
	allowed bool, source driver.Source, remaining int64,
	retryAfter, resetAfter time.Duration, _ error,
) {
	return fieldsOf(driver.Result{}, err)
}

// takeAny decides a demand of a key without a state, or of an algorithm that is no fieldStepper. sh
// is locked.
func (s *Store) takeAny(
	sh *shard, hash uint64, id uint32, now int64, d driver.Demand,
) (res driver.Result, err error) {
	if id == none {
		return s.takeNew(sh, hash, now, d)
	}
	err = sh.step(id, now, &d, &res)
	return res, err
}

// takeNew decides a demand of a key without a state. sh is locked.
func (s *Store) takeNew(
	sh *shard, hash uint64, now int64, d driver.Demand,
) (driver.Result, error) {
	reserved := mayAdd(d.Op)
	if reserved && !s.findRoom(sh, setOf(hash), now) {
		s.refused.Add(1)
		return driver.Result{}, driver.ErrCapacity
	}
	defer func() { // also if the algorithm panics
		if reserved {
			s.keys.Add(-1)
		}
	}()
	next, keep, res := d.Step(nil, now)
	if keep < 0 {
		return driver.Result{}, driver.ErrCorruptState
	}
	if keep > 0 && len(next) > 0 && (reserved || s.findRoom(sh, setOf(hash), now)) {
		sh.insert(hash, d.Key, sh.stateNameOf(d.Algorithm), next, expiry(now, keep))
		reserved = false
	}
	return res, nil
}
