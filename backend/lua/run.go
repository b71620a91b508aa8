// Package lua builds the calls that run algorithms on a server with Lua, and reads their replies.
// It is for authors of stores on Redis or Valkey that use another client library. Such a store
// names its keys, sends the script and maps the client's errors; docs/writing-a-store.md describes
// it.
//
// A script is a frame with the steps of one or several algorithms in it. The frame reads the clock
// and the states, runs the steps and writes what they return. It records a group only if all its
// demands are admitted.
package lua

import (
	"fmt"
	"slices"

	"github.com/truewindow/ratelimit/driver"
)

// HoldsSuffix ends the key of the holds of a state, after the key of the state.
const HoldsSuffix = ":h"

// A Run builds one run of a [Program] and reads its reply. Call Begin, then Add or AddSame for
// each group of demands, send Program, Keys and Args, and pass the reply to Results. A Run may be
// used again after Begin, and by one goroutine at a time. The zero Run is ready for Begin.
type Run struct {
	keys    []string
	demands []runDemand
	groups  []int  // index in demands of each group's first
	located string // the reply whose parts have been located in demands
	now     int64
	args    []string
	ints    []int64 // of all demands
	bytes   []byte

	scripts  []driver.Script // distinct, of the demands
	arranged bool            // set, places and unknown are those for scripts
	set      *set            // of the program; nil before the first
	places   []int           // of scripts in set
	unknown  []driver.Script // see together
}

// maxScripts bounds the scripts of a call: a place in a program is a byte, and the program may also
// have those of the library and of others.
const maxScripts = 128

// runDemand is a demand of a call. It keeps what Results needs of the algorithm, so that no method
// of the algorithm is called after the script was sent. It has the stored key, not the caller's.
type runDemand struct {
	op     driver.Op
	n, at  int64
	least  int64 // at least so many of n
	limit  driver.Limit
	key    int // index in keys
	script int // index in scripts
	args   []int64
	last   bool // of its group
	times  int  // number of equal takes that it stands for
	reply  int  // where its part of the reply begins
}

// Begin removes all demands. now, in µs since the Unix epoch, replaces the server's clock in tests;
// 0 means the server's clock.
func (r *Run) Begin(now int64) {
	clear(r.keys) // keys are users' data: keep none alive
	clear(r.demands)
	r.keys, r.demands, r.groups = r.keys[:0], r.demands[:0], r.groups[:0]
	r.scripts, r.ints = r.scripts[:0], r.ints[:0]
	r.now, r.located, r.arranged, r.unknown = now, "", false, nil
}

// Add adds a group: either all its demands are admitted, or none leaves a trace. keys[i] is the
// stored key of ds[i]; within a group they differ. Groups are independent and run in order. An
// error wraps [driver.ErrNoScript], or [driver.ErrInvalid] if the call would have more than 128
// different scripts. After an error, and after a panic of an algorithm, the Run is as it was.
func (r *Run) Add(keys []string, ds []driver.Demand) error {
	first := len(r.demands)
	if err := r.ask(ds...); err != nil {
		return err
	}
	r.demands[len(r.demands)-1].last = true
	before := r.keys // of earlier groups: within a group the keys differ
	for i := range keys {
		r.bind(&r.demands[first+i], before, keys[i])
	}
	r.groups = append(r.groups, first)
	return nil
}

// AddSame adds equal demands on one key; times is their number, at least 1. They are decided one
// after the other, each as if it were a group by itself. For Results they are one group, with times
// results. If they are Takes and their script has [driver.Script].Sums, the server reads the state
// at most three times for all of them, or a few times more if the clock or the resolution has just
// changed. It runs the step as often, or once for each if ResetAfter does not grow by the same time
// from each to the next. Otherwise it does both once for each.
//
// An error wraps [driver.ErrNoScript] or [driver.ErrInvalid]. After an error, and after a panic of
// the algorithm, the Run is as it was.
func (r *Run) AddSame(key string, d driver.Demand, times int) error {
	if times < 1 {
		return fmt.Errorf("%w demand: %d times", driver.ErrInvalid, times)
	}
	first := len(r.demands)
	if err := r.ask(d); err != nil {
		return err
	}
	same := &r.demands[first]
	same.last = true
	r.bind(same, r.keys, key)
	if d.Op == driver.OpTake && d.Least == 0 && r.scripts[same.script].Sums {
		same.times = times
	} else {
		for range times - 1 {
			r.demands = append(r.demands, r.demands[first])
		}
	}
	r.groups = append(r.groups, first)
	return nil
}

// ask adds demands, with everything that is needed of their algorithms, or none of them.
func (r *Run) ask(ds ...driver.Demand) error {
	demands, ints, scripts, done := len(r.demands), len(r.ints), len(r.scripts), false
	defer func() {
		if !done {
			clear(r.demands[demands:])
			r.demands, r.ints, r.scripts = r.demands[:demands], r.ints[:ints], r.scripts[:scripts]
		}
	}()
	for _, d := range ds {
		script := d.Algorithm.Script()
		if script.Source == "" {
			return fmt.Errorf("%w: %q", driver.ErrNoScript, d.Algorithm.Name())
		}
		from := len(r.ints)
		r.ints = append(r.ints, script.Args(r.ints[from:from], d)...)
		index := indexOf(r.scripts, script)
		if index < 0 {
			if index = len(r.scripts); index == maxScripts {
				return fmt.Errorf("%w demands: more than %d different algorithms in one call",
					driver.ErrInvalid, maxScripts)
			}
			r.scripts = append(r.scripts, script)
		}
		r.demands = append(r.demands, runDemand{
			op: d.Op, n: d.N, at: d.At, least: d.Least, limit: d.Algorithm.Limit(),
			script: index, args: r.ints[from:], times: 1,
		})
	}
	done, r.arranged = true, false
	return nil
}

// bind gives d its key, which may be among before.
func (r *Run) bind(d *runDemand, before []string, key string) {
	if d.key = slices.Index(before, key); d.key < 0 {
		d.key = len(r.keys)
		r.keys = append(r.keys, key)
		if end := suffix(r.scripts[d.script]); end != "" {
			r.keys = append(r.keys, key+end)
		}
	}
	r.located = ""
}

// suffix returns what follows the key of a state in the key of its holds.
func suffix(script driver.Script) string {
	if script.Holds && !script.HoldsOnly {
		return HoldsSuffix
	}
	return ""
}

// arrange decides which scripts the program has.
func (r *Run) arrange() {
	if r.arranged {
		return
	}
	r.unknown = nil
	if len(r.scripts) > 1 {
		r.set, r.unknown = together(r.scripts)
	} else if r.set == nil || !slices.EqualFunc(r.set.scripts, r.scripts, same) {
		r.set = newSet(slices.Clone(r.scripts))
	}
	r.places = r.places[:0]
	for _, s := range r.scripts {
		r.places = append(r.places, indexOf(r.set.scripts, s))
	}
	r.arranged = true
}

// Program returns the script to run. For several algorithms it also has steps that no demand needs,
// so that a server has few programs to keep.
func (r *Run) Program() Program {
	r.arrange()
	if len(r.demands) == 1 && r.demands[0].times == 1 && r.demands[0].least == 0 {
		return r.set.one()
	}
	return r.set.many()
}

// Keys returns the script's KEYS: each state once, and after a state with holds the key of these,
// which is the state's with [HoldsSuffix]. The slice is valid until the next Begin.
func (r *Run) Keys() []string { return r.keys }

// Args returns the script's ARGV, in binary. The slice is valid until the next Begin.
func (r *Run) Args() []string {
	r.arrange()
	clear(r.args)
	r.args = r.args[:0]
	for i := range r.demands {
		d := &r.demands[i]
		more := byte(1)
		if d.last {
			more = 0
		}
		b := appendInt(r.bytes[:0], r.now, 7)
		op, n, at := int64(d.op), d.n, d.at
		switch {
		case d.least > 0:
			op, at = leastOps[d.op], d.least
		case d.op == driver.OpTake:
			at = int64(d.times - 1)
		case d.op == driver.OpReset:
			n = 0 // it may be anything
		}
		b = appendInt(b, n<<3|op, 7)
		b = appendInt(b, timeOrZero(at), 7)
		b = appendInt(b, int64(d.key+1), 4)
		b = append(b, byte(r.places[d.script]+1), more)
		for _, v := range d.args {
			b = appendInt(b, v, 7)
		}
		r.bytes = b
		r.args = append(r.args, string(b))
	}
	return r.args
}

// leastOps are the numbers of operations with a Least in many.lua.
var leastOps = map[driver.Op]int64{driver.OpTake: 6, driver.OpHold: 7}

// timeOrZero returns at, or 0 if a step in Lua cannot calculate with it.
func timeOrZero(at int64) int64 {
	if at < 0 || at >= 1<<53 {
		return 0
	}
	return at
}

// appendInt appends the low n bytes of v, big-endian.
func appendInt(b []byte, v int64, n int) []byte {
	for n--; n >= 0; n-- {
		b = append(b, byte(v>>(8*n)))
	}
	return b
}
