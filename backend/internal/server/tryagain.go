package server

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
)

// While a slot moves from one server of a cluster to another, key by key, neither can run a script on several of its keys unless it has all of
// them: it answers TRYAGAIN and has run nothing. A key that nobody has yet is missing on both until the whole slot has moved. A single key always finds its
// server.

const (
	firstPause   = time.Millisecond
	longestPause = 16 * time.Millisecond
)

// tryAgain tells that err is the answer TRYAGAIN, with or without what a store wraps it in.
func (s *Store) tryAgain(err error) bool {
	if err == nil || !s.cluster {
		return false
	}
	text, ok := s.client.ErrorReply(err)
	return ok && strings.HasPrefix(text, "TRYAGAIN ")
}

// decideApart sends each group in a call of its own, after a call with all of them was answered TRYAGAIN.
func (s *Store) decideApart(ctx context.Context, gate *Gate, groups []Group) error {
	if !gate.Open() {
		return context.Canceled // nobody waits
	}
	for i := range groups {
		if err := s.decideGroups(ctx, new(Gate), groups[i:i+1]); err != nil {
			groups[i].Err = err
		}
	}
	return nil
}

// decideAll is decide for demands that only one call can decide. On TRYAGAIN it sees to it that none of their keys is one that nobody has, and
// asks again until those that have not moved yet have followed the others. It gives up with a quarter of the time left: a demand that is on its
// way at the deadline would have an unknown outcome.
func (s *Store) decideAll(ctx context.Context, ds []ratelimit.Demand, out []ratelimit.Result) error {
	if !s.cluster {
		return s.decide(ctx, ds, out)
	}
	deadline := time.Now().Add(s.timeout)
	err := s.decide(ctx, ds, out)
	if !s.tryAgain(err) {
		return err
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	deadline, _ = ctx.Deadline()
	last := deadline.Add(-time.Until(deadline) / 4)
	for wait := firstPause; ; wait = min(2*wait, longestPause) {
		s.settle(ctx, ds)
		if again := s.decide(ctx, ds, out); !s.tryAgain(again) {
			return again
		}
		if time.Now().Add(wait).After(last) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", err, ctx.Err())
		case <-time.After(wait):
		}
	}
}

// settle gives a place to those keys of ds that nobody has.
func (s *Store) settle(ctx context.Context, ds []ratelimit.Demand) {
	var gate Gate // of no demand
	_, _ = s.calls.Do(ctx, s.timeout, &gate, func(ctx context.Context) error {
		for i := range ds {
			if _, err := s.run(ctx, &gate, placeProgram, []string{s.keys.Key(ds[i])}, nil); err != nil {
				return err
			}
		}
		return nil
	})
}

// placeProgram makes the state of a key that nobody has an empty one, which is what it is anyway, for a second.
var placeProgram = func() algorithm.Program {
	const source = "redis.call('SET', KEYS[1], '', 'PX', 1000, 'NX') return ''"
	sum := sha1.Sum([]byte(source))
	return algorithm.Program{Source: source, SHA: hex.EncodeToString(sum[:])}
}()
