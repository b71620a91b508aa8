package server

import (
	"context"

	"github.com/truewindow/ratelimit/backend/internal/denycache"
)

// startLook sends l in the background. With Options.Now the caller waits for it: a look that
// arrives later would have a time that has passed.
func (e *executor) startLook(l *denycache.Look) {
	if e.now != nil {
		e.look(l)
	} else {
		go e.look(l)
	}
}

// look sends l and passes the results to the cache. It returns no error: another look follows the
// next refusal.
func (e *executor) look(l *denycache.Look) {
	answered := false
	defer func() { e.cache.Fill(l, answered) }()
	c := new(scriptRun)
	now := int64(0)
	if e.now != nil {
		now = e.now()
	}
	c.script.Begin(now)
	for i := range l.Groups {
		if !c.add(&l.Groups[i]) {
			return
		}
	}
	c.program = c.script.Program()
	c.command = newCommand(&c.gate, c.program, c.script.Keys(), c.script.Args())
	// after a step back of the clock or a change of the limit a peek writes, and a look must not
	c.command.Verb = "evalsha_ro"
	e.tracker.RunTracked(context.Background(), &c.command)
	if e.hasReply(c.command.Err, "NOSCRIPT ") {
		c.command.Verb, c.command.Script, c.command.Err = "eval_ro", c.program.Source, nil
		e.tracker.RunTracked(context.Background(), &c.command)
	}
	if c.command.Err != nil {
		return
	}
	for i := range l.Groups {
		g := &l.Groups[i]
		g.Err = c.script.Results(c.command.Reply, i, g.Results)
		g.Wrote = c.script.Wrote(c.command.Reply, i)
	}
	answered = true
}
