package server

import (
	"context"

	"github.com/truewindow/ratelimit/backend/internal/denycache"
)

// startRecheck sends l in the background. With Options.Now the caller waits for it: a recheck that
// arrives later would have a time that has passed.
func (e *executor) startRecheck(l *denycache.Recheck) {
	if e.now != nil {
		e.recheck(l)
	} else {
		go e.recheck(l)
	}
}

// recheck sends l and passes the results to the cache. It returns no error: another recheck follows
// the next refusal.
func (e *executor) recheck(l *denycache.Recheck) {
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
	// after a step back of the clock or a change of the limit a peek writes, and a recheck must not
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
