package conformance

import (
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/truewindow/ratelimit/backend/lua"
	"github.com/truewindow/ratelimit/driver"
)

//go:embed lua.lua
var luaScript string

// A luaCall is a demand with what the Go step has made of it.
type luaCall struct {
	d       driver.Demand
	now     int64
	how     string // what becomes of the state before, as in lua.lua
	spoiled bool   // the state is one that no step has written
	before  []byte
	run     lua.Run

	want  []driver.Result // one for each of several equal takes
	state []byte          // after it
	keep  time.Duration   // of the last that wrote, or below 0
}

// String describes a call, with all that its Go step gets.
func (c *luaCall) String() string {
	d := c.d
	text := fmt.Sprintf("%v %d", d.Op, d.N)
	if len(c.want) > 1 {
		text += fmt.Sprintf(" %d times", len(c.want))
	}
	if d.At != 0 {
		text += fmt.Sprintf(" at %d", d.At)
	}
	if d.ID != 0 {
		text += fmt.Sprintf(" by ID %d", d.ID)
	}
	if d.HoldTimeout != 0 {
		text += fmt.Sprintf(" for %v", d.HoldTimeout)
	}
	return fmt.Sprintf("%s, now %d, under %v (%+v), on the state %x", text, c.now,
		d.Algorithm.Limit(), d.Algorithm, c.before)
}

// A luaAnswer is what a server has made of a call; lua.lua describes it.
type luaAnswer struct{ failure, reply, state, us, life, wrote string }

// noted is an algorithm whose Lua step is noted by lua.lua.
type noted struct{ driver.Algorithm }

func (n noted) Script() driver.Script {
	script := scriptOf(n.Algorithm)
	script.Source += "\nstep = conformance_step(step)\n"
	return script
}

// luaSource returns the script for calls under a.
func luaSource(key string, a driver.Algorithm) (string, error) {
	var texts [2]string
	for i := range texts {
		var run lua.Run
		run.Begin(1)
		for range i + 1 {
			if err := run.Add([]string{key}, []driver.Demand{take(key, noted{a}, 1)}); err != nil {
				return "", err
			}
		}
		texts[i] = run.Program().Source
	}
	return strings.NewReplacer("--ONE--", texts[0], "--MANY--", texts[1],
		"HASHES", strconv.FormatBool(a.Script().Holds)).Replace(luaScript), nil
}

// ask has the server run calls one after the other.
func (p *luaRun) ask(ctx context.Context, calls []luaCall) ([]luaAnswer, error) {
	var args, keys []string
	for i := range calls {
		c := &calls[i]
		d := c.d
		for _, arg := range d.Algorithm.Script().Args(nil, d) {
			if arg < 0 || arg >= 1<<53 {
				return nil, fmt.Errorf("has the arg %d, want 0 or more and below 2^53\n\tin %v",
					arg, c)
			}
		}
		d.Algorithm = noted{d.Algorithm}
		c.run.Begin(c.now)
		program, err := "1", error(nil)
		if len(c.want) > 1 {
			program, err = "2", c.run.AddSame(p.key, d, len(c.want))
		} else {
			err = c.run.Add([]string{p.key}, []driver.Demand{d})
		}
		if err != nil {
			return nil, err
		}
		keys = c.run.Keys()
		args = append(args, program, c.how, c.run.Args()[0])
	}
	reply, err := p.eval(ctx, p.script, keys, args)
	if err != nil {
		return nil, fmt.Errorf("is not checked: %w", err)
	}
	answers := make([]luaAnswer, len(calls))
	for i := range answers {
		a := &answers[i]
		for _, field := range []*string{&a.failure, &a.reply, &a.state, &a.us, &a.life, &a.wrote} {
			if *field, err = cutField(&reply); err != nil {
				return nil, err
			}
		}
	}
	return answers, nil
}

// cutField removes a string, after its length in 4 bytes, from the beginning of rest.
func cutField(rest *string) (string, error) {
	if len(*rest) >= 4 {
		end := 4 + int(binary.BigEndian.Uint32([]byte((*rest)[:4])))
		if len(*rest) >= end {
			field := (*rest)[4:end]
			*rest = (*rest)[end:]
			return field, nil
		}
	}
	return "", errors.New("is not checked: Eval returned a part of the reply")
}
