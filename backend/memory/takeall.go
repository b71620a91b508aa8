package memorystore

import (
	"math/bits"

	"github.com/truewindow/ratelimit"
)

// target is where one demand of a TakeAll is decided.
type target struct {
	hash  uint64
	id    uint32 // in its shard; none if the key is unknown
	place place
}

// takeAll looks at all demands and takes when all are admitted. The shards of all targets, mine, are locked.
func (s *Store) takeAll(mine uint64, targets []target, now int64, ds []ratelimit.Demand, out []ratelimit.Result) (err error) {
	defer func() { s.release(targets) }()
	if unknown := s.find(targets, ds); unknown > 0 && s.keys.Load()+int64(unknown) > s.maxKeys {
		// Later nothing may be forgotten here: it might be what was found.
		s.forgetAll(mine, now)
		s.find(targets, ds)
	}
	overflowing := false
	for i := range targets {
		t := &targets[i]
		if t.id != none {
			continue
		}
		if t.place, err = s.place(nil, mine, now, ds[i]); err != nil {
			return err
		}
		overflowing = overflowing || t.place == inOverflow
	}
	if overflowing {
		s.overflow.mu.Lock()
		defer s.overflow.mu.Unlock()
	}

	admitted, err := s.look(targets, now, ds, out)
	if err != nil || !admitted {
		return err
	}
	if overflowing {
		if admitted, err = s.overflow.takeAll(targets, now, ds, out); err != nil || !admitted {
			return err
		}
	}
	for i := range targets {
		if err := s.takeTarget(&targets[i], now, ds[i], &out[i]); err != nil {
			return err
		}
	}
	return nil
}

// find finds the states of targets, and returns how many are unknown.
func (s *Store) find(targets []target, ds []ratelimit.Demand) (unknown int) {
	for i := range targets {
		t := &targets[i]
		sh := s.shard(t.hash)
		if t.id = sh.find(t.hash, &ds[i], ds[i].Algorithm == sh.last.algorithm); t.id == none {
			unknown++
		}
	}
	return unknown
}

// forgetAll forgets what has run out in a set of shards, which are locked.
func (s *Store) forgetAll(set uint64, now int64) {
	for ; set != 0; set &= set - 1 {
		sh := &s.shards[bits.TrailingZeros64(set)]
		for sh.due.Load() <= now {
			sh.forget(now, cleanBatch)
		}
	}
}

// look answers each demand with its Look and reports whether all are allowed.
func (s *Store) look(targets []target, now int64, ds []ratelimit.Demand, out []ratelimit.Result) (allowed bool, err error) {
	allowed = true
	for i := range targets {
		t := &targets[i]
		if out[i], err = s.lookTarget(t, now, ds[i]); err != nil {
			return false, err
		}
		allowed = allowed && out[i].Allowed
	}
	return allowed, nil
}

func (s *Store) lookTarget(t *target, now int64, d ratelimit.Demand) (ratelimit.Result, error) {
	sh := s.shard(t.hash)
	var state []byte
	switch {
	case t.id != none:
		state = sh.entry(t.id).state
	case t.place == inOverflow:
		state = s.overflow.state(d)
	}
	next, keep, res := d.Look(state, now)
	switch {
	case keep < 0:
		return ratelimit.Result{}, ratelimit.ErrCorruptState
	case keep > 0 && t.id != none:
		sh.store(t.id, next, now, keep)
	case keep > 0 && t.place == inOverflow:
		s.overflow.store(d, next, now, keep)
	}
	return res, nil
}

// takeTarget takes after all demands were found to be admitted.
func (s *Store) takeTarget(t *target, now int64, d ratelimit.Demand, out *ratelimit.Result) (err error) {
	sh := s.shard(t.hash)
	switch {
	case t.id != none:
		*out, err = sh.step(t.id, now, &d)
		return err
	case t.place == inOverflow:
		return nil
	}
	next, keep, res := d.Step(nil, now)
	*out = res
	if keep > 0 && len(next) > 0 {
		sh.insert(t.hash, d, next, expiry(now, keep))
		t.place = nowhere
	}
	return nil
}

// release gives back the room that was reserved and not used.
func (s *Store) release(targets []target) {
	for i := range targets {
		if targets[i].place == inShard {
			s.keys.Add(-1)
		}
	}
}
