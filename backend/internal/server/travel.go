package server

import (
	"context"
	"fmt"

	"github.com/truewindow/ratelimit"
)

// travel decides ds together with what other callers ask for at the same time.
func (s *Store) travel(ctx context.Context, ds []ratelimit.Demand, out []ratelimit.Result) error {
	for i := range ds {
		if a := ds[i].Algorithm; a.Script().Source == "" {
			return fmt.Errorf("%w: %q", ratelimit.ErrNoScript, a.Name())
		}
	}
	if len(ds) == 1 {
		key := s.keys.Key(ds[0])
		var err error
		out[0], err = s.lane(key).Take(ctx, key, ds[0])
		return err
	}
	keys := make([]string, len(ds))
	for i := range ds {
		keys[i] = s.keys.Key(ds[i])
	}
	if err := s.oneServer(keys); err != nil {
		return err
	}
	return s.lane(keys[0]).TakeAll(ctx, keys, ds, out)
}

// decideGroups sends groups, on a cluster all of one slot, in one call.
func (s *Store) decideGroups(ctx context.Context, gate *Gate, groups []Group) error {
	c := s.scratch.Get().(*call)
	defer s.scratch.Put(c)
	if err := c.load(groups); err != nil {
		return err
	}
	program, keys, args := c.script.Program(), c.script.Keys(), c.script.Args()
	sent := s.deny.depart(groups)
	reply, err := s.run(ctx, gate, program, keys, args)
	if err != nil {
		s.deny.lose(groups)
		if len(groups) > 1 && s.tryAgain(err) && gate.Shut() {
			return s.decideApart(ctx, gate, groups)
		}
		return s.failure(err, gate.Opened())
	}
	for i := range groups {
		groups[i].Err = c.script.Results(reply, i, groups[i].Results)
	}
	s.deny.arrive(groups, sent, func(group int) bool { return c.script.Wrote(reply, group) })
	return nil
}

// load makes c the call that decides groups.
func (c *call) load(groups []Group) error {
	c.begin()
	for i := range groups {
		g := &groups[i]
		err := error(nil)
		if g.Times > 1 {
			err = c.script.AddSame(g.Keys[0], g.Demands[0], g.Times)
		} else {
			err = c.script.Add(g.Keys, g.Demands)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
