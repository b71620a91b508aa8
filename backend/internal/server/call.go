package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
)

// call is one run of a script on its way to the server and back. It belongs to the client until run returns, also when its caller
// has left, so it holds copies of all it needs.
type call struct {
	store  *Store
	script algorithm.Call
	keys   []string
	gate   Gate
	reply  string
	groups [1]Group // what the deny cache wants to know
}

// prepare makes c the call that decides ds together.
func (c *call) prepare(ds []ratelimit.Demand) error {
	c.begin()
	clear(c.keys)
	c.keys = c.keys[:0]
	for i := range ds {
		c.keys = append(c.keys, c.store.keys.Key(ds[i]))
	}
	if err := c.store.oneServer(c.keys); err != nil {
		return err
	}
	if c.store.deny != nil {
		c.groups[0] = Group{Keys: c.keys, Demands: slices.Clone(ds), Results: make([]ratelimit.Result, len(ds))}
	}
	return c.script.Add(c.keys, ds)
}

// begin makes c a call that decides nothing yet.
func (c *call) begin() {
	c.gate.Reset()
	c.reply = ""
	now := int64(0)
	if c.store.now != nil {
		now = c.store.now()
	}
	c.script.Begin(now)
}

// oneServer reports keys that no server has all of.
func (s *Store) oneServer(keys []string) error {
	if s.cluster && !OneSlot(keys) {
		return fmt.Errorf("%s: keys of several slots in one TakeAll on a cluster: %w", s.words.Package, errors.ErrUnsupported)
	}
	return nil
}

// run may go on when the caller has left.
func (c *call) run(ctx context.Context) (err error) {
	program, keys, args := c.script.Program(), c.script.Keys(), c.script.Args()
	deny, groups := c.store.deny, c.groups[:]
	if deny == nil {
		c.reply, err = c.store.run(ctx, &c.gate, program, keys, args)
		return err
	}
	sent := deny.depart(groups)
	if c.reply, err = c.store.run(ctx, &c.gate, program, keys, args); err != nil {
		deny.lose(groups)
		return err
	}
	groups[0].Err = c.script.Results(c.reply, 0, groups[0].Results)
	deny.arrive(groups, sent, func(int) bool { return c.script.Wrote(c.reply, 0) })
	return nil
}

// run sends a script by its name, and whole to a server that does not know the name.
func (s *Store) run(ctx context.Context, gate *Gate, program algorithm.Program, keys, args []string) (string, error) {
	reply, err := s.client.Run(ctx, gate, "evalsha", program.SHA, keys, args)
	if err == nil {
		return reply, nil
	}
	if s.noScript(err) && gate.Shut() {
		return s.client.Run(ctx, gate, "eval", program.Source, keys, args)
	}
	return "", err
}

// noScript tells that err is the answer of a server that does not know a script by its name.
func (s *Store) noScript(err error) bool {
	if err == nil {
		return false
	}
	text, ok := s.client.ErrorReply(err)
	return ok && strings.HasPrefix(text, "NOSCRIPT ")
}
