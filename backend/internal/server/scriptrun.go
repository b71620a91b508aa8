package server

import (
	"crypto/sha1"
	"encoding/hex"

	"github.com/truewindow/ratelimit/backend/internal/batch"
	"github.com/truewindow/ratelimit/backend/internal/denycache"
	"github.com/truewindow/ratelimit/backend/internal/gate"
	"github.com/truewindow/ratelimit/backend/lua"
)

// scriptRun is one run of a script, which decides groups.
type scriptRun struct {
	groups  []batch.Group
	script  lua.Run
	program lua.Program
	command Command
	gate    gate.Gate // of a call that is one of several in a batch

	sent denycache.Sent
}

// load makes c the call that decides groups at now. It leaves out groups whose algorithm fails, and
// sets their Err or Panic.
func (c *scriptRun) load(groups []batch.Group, now int64) {
	c.script.Begin(now)
	n := 0
	for i := range groups {
		if c.add(&groups[i]) {
			groups[n], groups[i] = groups[i], groups[n]
			n++
		}
	}
	c.groups = groups[:n]
}

// add adds g, and reports whether it could.
func (c *scriptRun) add(g *batch.Group) bool {
	done := false
	defer func() {
		if !done {
			g.Panic = recover()
		}
	}()
	if g.Times > 1 {
		g.Err = c.script.AddSame(g.Keys[0], g.Demands[0], g.Times)
	} else {
		g.Err = c.script.Add(g.Keys, g.Demands)
	}
	done = true
	return g.Err == nil
}

// prepare makes the command that sends c through gate.
func (c *scriptRun) prepare(gate *gate.Gate, cache *denycache.Cache) {
	c.program = c.script.Program()
	c.command = newCommand(gate, c.program, c.script.Keys(), c.script.Args())
	if cache != nil {
		c.sent = cache.Send(c.groups)
	}
}

// newProgram returns the program with this source.
func newProgram(source string) lua.Program {
	sum := sha1.Sum([]byte(source))
	return lua.Program{Source: source, SHA: hex.EncodeToString(sum[:])}
}

func newCommand(g *gate.Gate, program lua.Program, keys, args []string) Command {
	return Command{Gate: g, Verb: "evalsha", Script: program.SHA, Keys: keys, Args: args}
}

// clear drops what c refers to and keeps its arrays.
func (c *scriptRun) clear() {
	c.groups, c.command = nil, Command{}
	c.script.Begin(0)
}
