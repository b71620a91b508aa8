package lua

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// The reply of a script is a string of big-endian integers; many.lua documents them.
const (
	replyInt      = 7
	replySize     = 6 + 3*replyInt
	replyAdmitted = 6 + 2*replyInt // of one admitted demand alone

	replyRefused = 1 << 44
	replyCorrupt = 1 << 45
	replyWrote   = 1 << 46
	replyFailed  = 1 << 47
)

// A StepError is a server's error from a step, or from writing what the step returned. It concerns
// only the demands of its group. It wraps [driver.ErrUnavailable], and
// [driver.ErrOutcomeUnknown] if the group had written something by then. Its text may contain
// stored keys: a store must remove them before it returns the error.
type StepError struct {
	Text  string // the server's error
	Wrote bool   // whether the group had written something
}

// Error returns the text.
func (e *StepError) Error() string { return e.Text }

// Unwrap returns ErrOutcomeUnknown if the group had written something, else ErrUnavailable.
func (e *StepError) Unwrap() error {
	if e.Wrote {
		return driver.ErrOutcomeUnknown
	}
	return driver.ErrUnavailable
}

// part is the part of a reply for one demand, or for some of the equal takes that it stands for.
type part struct {
	count     int
	flags     int64
	remaining int64
	retry     int64
	reset     int64
	grows     int64  // reset, from one of several admitted takes to the next
	units     int64  // of holds, settlements and takes with a Least; else it means nothing
	text      string // of a group that failed
}

// parts walks the parts of a reply in the order of the demands that they answer.
type parts struct {
	reply   string
	offset  int         // of the next part
	demands []runDemand // whose parts have not been read; the next part is for the first
	taken   int         // equal takes of that demand that have been answered
}

// next returns the next part and its demand. ok is false after the last part, and if the reply is
// malformed.
func (w *parts) next() (d *runDemand, p part, ok bool) {
	if len(w.demands) == 0 {
		return nil, part{}, false
	}
	d = &w.demands[0]
	if p, ok = w.decode(d); ok {
		if w.taken += p.count; w.taken == d.times {
			w.demands, w.taken = w.demands[1:], 0
		}
	}
	return d, p, ok
}

// decode reads the part of d at offset, and moves offset to its end.
func (w *parts) decode(d *runDemand) (p part, ok bool) {
	rest := w.reply[w.offset:]
	p.count = 1
	if d.times > 1 {
		count := cutInt(&rest, replyInt)
		if count < 1 || count > int64(d.times-w.taken) {
			return part{}, false
		}
		p.count = int(count)
	}
	alone := w.offset == 0 && d.times == 1 && len(w.reply) == replyAdmitted // without RetryAfter
	if !alone && len(rest) < replySize {
		return part{}, false
	}
	remaining := cutInt(&rest, 6)
	p.flags, p.remaining = remaining&^(replyRefused-1), remaining&(replyRefused-1)
	if !alone {
		p.retry = cutInt(&rest, replyInt)
	}
	p.reset, p.units = cutInt(&rest, replyInt), cutInt(&rest, replyInt)
	if alone && p.flags&^replyWrote != 0 {
		return part{}, false
	}
	if p.count > 1 && p.flags&^replyWrote == 0 {
		p.retry, p.grows = 0, p.retry
	}
	if p.flags&replyFailed != 0 {
		if int64(len(rest)) < p.retry {
			return part{}, false
		}
		p.text, rest = rest[:p.retry], rest[p.retry:]
	}
	w.offset = len(w.reply) - len(rest)
	return p, true
}

// cutInt removes an integer of n bytes from the beginning of rest and returns it, or returns -1 if
// rest is shorter.
func cutInt(rest *string, n int) (v int64) {
	if len(*rest) < n {
		return -1
	}
	for _, c := range []byte((*rest)[:n]) {
		v = v<<8 | int64(c)
	}
	*rest = (*rest)[n:]
	return v
}

// result returns the Result of d. The error wraps [driver.ErrCorruptState], is a [*StepError],
// or is errForeign for numbers that no step returns, of 2^53 or more.
func (p part) result(d *runDemand) (driver.Result, error) {
	switch {
	case p.flags&replyFailed != 0:
		return driver.Result{}, &StepError{Text: p.text, Wrote: p.flags&replyWrote != 0}
	case p.flags&replyCorrupt != 0:
		return driver.Result{}, driver.ErrCorruptState
	case p.retry|p.reset|p.units >= 1<<53, p.grows > p.reset/int64(max(1, p.count-1)):
		return driver.Result{}, errForeign
	}
	res := driver.Result{
		Allowed:    p.flags&replyRefused == 0,
		Limit:      d.limit,
		Remaining:  p.remaining,
		RetryAfter: time.Duration(p.retry) * time.Microsecond,
		ResetAfter: time.Duration(p.reset) * time.Microsecond,
	}
	if d.op == driver.OpHold || d.op == driver.OpSettle || d.least > 0 && res.Allowed {
		res.Units = p.units
	} else {
		res.Units = driver.Taken(d.op, d.n, res.Allowed)
	}
	return res, nil
}

// errForeign is the error for a reply of the right length that is not from a step.
var errForeign = fmt.Errorf("%w: the script replied with numbers out of range",
	driver.ErrOutcomeUnknown)

// locate finds each demand's part of a reply and reports whether it is a reply for these demands.
func (r *Run) locate(reply string) bool {
	if r.located != "" && r.located == reply {
		return true
	}
	w := parts{reply: reply, demands: r.demands}
	for len(w.demands) > 0 {
		if w.taken == 0 {
			w.demands[0].reply = w.offset
		}
		if _, _, ok := w.next(); !ok {
			return false
		}
	}
	if w.offset != len(reply) {
		return false
	}
	if r.located = reply; len(r.unknown) > 0 {
		learn(r.unknown)
		r.unknown = nil
	}
	return true
}

// parts returns the parts of a group of a reply that has been located.
func (r *Run) parts(reply string, group int) parts {
	demands := r.demands[r.groups[group]:]
	if group+1 < len(r.groups) {
		demands = r.demands[r.groups[group]:r.groups[group+1]]
	}
	return parts{reply: reply, offset: demands[0].reply, demands: demands}
}

// Results reads the answer of a group, counted from 0 in the order of Add and AddSame, from the
// script's reply. out has the length of the group. An error wraps [driver.ErrCorruptState], is a
// [*StepError], or wraps [driver.ErrOutcomeUnknown] for a reply that is not from this script. If
// a state turns out to be corrupt, or a step fails, after some of the equal demands of AddSame,
// those decided before have their Result and the others the zero Result, whose Limit is 0.
func (r *Run) Results(reply string, group int, out []driver.Result) error {
	if !r.locate(reply) {
		return fmt.Errorf("%w: the script replied %d bytes for %d demands",
			driver.ErrOutcomeUnknown, len(reply), len(r.demands))
	}
	var first error // of the parts: the others of a group that failed say nothing
	w, i := r.parts(reply, group), 0
	for {
		d, p, ok := w.next()
		if !ok {
			if !r.demands[r.groups[group]].last {
				clearUnits(out)
			}
			return first
		}
		res, err := p.result(d)
		if errors.Is(err, errForeign) {
			clear(out)
			return err
		}
		if first == nil {
			first = err
		}
		for left := p.count - 1; left >= 0; left-- {
			out[i] = res
			if res.Allowed {
				out[i].Remaining += int64(left) * d.n
				out[i].ResetAfter -= time.Duration(int64(left)*p.grows) * time.Microsecond
			}
			i++
		}
	}
}

// clearUnits sets Units of a group that was decided together and refused.
func clearUnits(out []driver.Result) {
	if slices.ContainsFunc(out, func(res driver.Result) bool { return !res.Allowed }) {
		for i := range out {
			out[i].Units = 0
		}
	}
}

// Wrote reports whether the server wrote a state although the group recorded nothing: a peek or a
// refusal may do so after the server's clock has stepped back. For other groups it means nothing.
// Call it after Results, with the same reply.
func (r *Run) Wrote(reply string, group int) bool {
	if r.located == "" || r.located != reply {
		return false
	}
	w := r.parts(reply, group)
	for {
		_, p, ok := w.next()
		if !ok || p.flags&replyWrote != 0 {
			return ok
		}
	}
}
