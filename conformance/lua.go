package conformance

import (
	"bytes"
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/logbytes"
)

// Eval runs a Lua script on a server, as the command EVAL does, and returns its reply, which is a
// string.
type Eval func(ctx context.Context, script string, keys, args []string) (string, error)

// CheckLua tests that the Lua steps of opts.Algorithms do what their Go steps do, which is the rule
// "Script returns the same step for servers that run Lua" of [driver.Algorithm]. It makes random
// demands, in the programs that the stores on Redis and Valkey run, and compares after each
//
//   - the result or the error, also of states that no step wrote,
//   - whether something was written, and the bytes of the state,
//   - the time to live, to the microsecond: us in Lua is keep in Go, or is nil where the time to
//     live stays,
//   - for [driver.Script].Sums, the results of equal takes that are decided together.
//
// It also reports args that are out of range, a Source that is not constant, and other commands of
// a step than GETRANGE and STRLEN of its key. A state of more than 160 bytes that no step wrote may
// be corrupt in Go alone, since a Lua step gets only its end. For a [driver.Holder], whose holds a
// server keeps in another form, it compares results and whether something was written.
//
// It takes about a second for each algorithm on a server nearby, or a minute or two if opts.Full is
// set. It uses one key at a time, whose name begins with "{ratelimit:conformance:", and deletes it.
// Of opts it uses Algorithms and Full. The error names a seed: set RATELIMIT_CONFORMANCE_SEED to it
// to repeat the run.
func CheckLua(ctx context.Context, eval Eval, opts *Options) error {
	s := newSuite(opts)
	var names []string
	kinds := make(map[string][]newAlgorithm) // by name: they share states
	for _, f := range s.algorithms {
		a := f(driver.Limit{Max: 1, Window: window})
		if a.Script().Source == "" {
			return fmt.Errorf("%w: %q", driver.ErrNoScript, a.Name())
		}
		if kinds[a.Name()] == nil {
			names = append(names, a.Name())
		}
		kinds[a.Name()] = append(kinds[a.Name()], f)
	}
	const runs, rounds = 8, 16 // so that TestCheckLuaFinds found each fault in 20 runs of 20
	e := env{suite: s, seed: seed()}
	var errs []error
	for _, name := range names {
		for i := range e.scale(runs) {
			p := newLuaRun(eval, kinds[name], e.seed+uint64(i))
			if err := p.play(ctx, rounds); err != nil {
				errs = append(errs, fmt.Errorf("the Lua step of %q: %w (to repeat the run set "+
					"%s=%d)", name, err, seedVar, p.seed))
				break
			}
		}
	}
	return errors.Join(errs...)
}

type newAlgorithm func(driver.Limit) driver.Algorithm

// luaKey returns a key for one run.
func luaKey() string { return "{ratelimit:conformance:" + crand.Text()[:12] + "}" }

// compare returns how the answer of a server to c differs from what the Go step has returned.
func (p *luaRun) compare(c *luaCall, got luaAnswer) error {
	a := c.d.Algorithm
	isLog := a.Name() == logName
	_, holds := a.(driver.Holder)
	results := make([]driver.Result, len(c.want))
	if got.failure != "" {
		return fmt.Errorf("failed: %s", got.failure)
	}
	if name, ok := strings.CutPrefix(got.wrote, "!"); ok {
		return fmt.Errorf("ran the command %s, want it to read its key by GETRANGE alone", name)
	}
	err := c.run.Results(got.reply, 0, results)
	corrupt := errors.Is(err, driver.ErrCorruptState)
	if err != nil && !corrupt {
		return fmt.Errorf("failed: %w", err)
	}
	if c.spoiled && (isLog || len(c.before) > luaTail) {
		return nil // Go may find what Lua does not read
	}
	deletes := holds && c.d.Op == driver.OpReset // both keys, even if there is nothing
	switch wrote := got.wrote != ""; {
	case corrupt != (c.keep < 0):
		return fmt.Errorf("returned %+v and the error %q, want keep %d as in Go", results,
			fmt.Sprint(err), c.keep)
	case wrote && c.keep <= 0 && !deletes:
		return fmt.Errorf("wrote by %s, want nothing written, as in Go (keep %d)", got.wrote,
			c.keep)
	case !wrote && c.keep > 0:
		return fmt.Errorf("wrote nothing, want a state as in Go (keep %d)", c.keep)
	case corrupt:
		return nil
	}
	for i := range results {
		if results[i] != c.want[i] {
			return fmt.Errorf("returned, as result %d,\n\t     %+v,\n\twant %+v as in Go", i+1,
				results[i], c.want[i])
		}
	}
	if holds {
		return nil
	}
	state, want := []byte(got.state), bytes.Clone(c.state)
	if isLog {
		logbytes.ClearFree(state)
		logbytes.ClearFree(want)
	}
	if !bytes.Equal(state, want) {
		return fmt.Errorf("left the state\n\t     %x,\n\twant %x as in Go", state, want)
	}
	if c.keep <= 0 || c.spoiled {
		return nil
	}
	return p.compareLife(c, got, isLog)
}

// compareLife compares for how long the state is kept. A log sets the time to live rarely, so it
// may be longer than keep.
func (p *luaRun) compareLife(c *luaCall, got luaAnswer, isLog bool) error {
	if len(c.state) == 0 {
		p.ends = 0
		return nil
	}
	keep := c.keep.Microseconds()
	if got.life != "" {
		ms, err := strconv.ParseInt(got.life, 10, 64)
		if err != nil {
			return fmt.Errorf("stored the time to live %q", got.life)
		}
		p.ends = c.now + ms*1000
		us, err := strconv.ParseFloat(got.us, 64)
		if len(c.want) == 1 && !isLog && (err != nil || us != float64(keep)) {
			return fmt.Errorf("returned the us %s, want the keep %d of Go", got.us, keep)
		}
	}
	least, most := c.now+keep, c.now+keep+luaSlack
	switch {
	case p.ends == 0:
		return fmt.Errorf("stored a state without a time to live, want %d µs as in Go", keep)
	case p.ends < least:
		return fmt.Errorf("left a state that expires in %d µs, want %d as in Go",
			p.ends-c.now, keep)
	case p.ends > most && !isLog:
		return fmt.Errorf("left a state that expires in %d µs, want %d as in Go, or %d later at "+
			"most", p.ends-c.now, keep, luaSlack)
	}
	return nil
}

// logName is the name of the log, whose states may differ in some bytes.
var logName = algorithm.SlidingLog(driver.Limit{}).Name()

const (
	// luaTail is how many bytes of a state a Lua step gets.
	luaTail = 160
	// luaSlack is how much longer than us a server keeps a state, in µs: it rounds.
	luaSlack = 2000
)
