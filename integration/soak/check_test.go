package soak

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/conformance"
	"github.com/truewindow/ratelimit/conformance/linear"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/testkit/timed"
)

// What is checked of the calls of a group in a round, besides that every error is one that the
// contract permits:
//
//  - order: the calls that the server answered are linearizable on its clock. Calls of unknown
//    outcome may have happened at any time after their start, or never; calls with other errors
//    did not happen (linear.CheckRunning).
//  - limit: the units that were admitted, less what was canceled or reset, never exceed Max in any
//    Window of the server's clock. What was held counts at the time of the hold. This check does
//    not depend on how the algorithm works.
//  - books: in the end at least the acknowledged units are recorded or held, and at most those and
//    the ones of unknown outcome.
//  - cache: a cached refusal repeats one that the server gave the same process before, for no more
//    units than the call asks for and, unless the state has changed, with a RetryAfter that is not
//    longer. It is at most CacheAge old. It is not returned after this process has freed units of
//    the state, nor later than maxNoticeDelay after another process has.

// maxNoticeDelay bounds how late a change of a state is seen: a client closes a connection after
// one and a half seconds of silence, and a busy machine adds to that.
const maxNoticeDelay = 3 * time.Second

// soakCacheAge is the default of CacheAge.
const soakCacheAge = 5 * time.Second

// A violation is a broken promise and the calls that broke it.
type violation struct {
	promise string
	calls   []soakCall
}

func (v violation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", v.promise)
	for _, c := range v.calls {
		fmt.Fprintf(&b, "%v\n", c)
	}
	return b.String()
}

func (c soakCall) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%14v +%-10v %d/%-2d", c.Call, c.Return-c.Call, c.Process, c.Worker)
	for i, d := range c.Demands {
		fmt.Fprintf(&b, " %v %d of %s by %v", d.Op, d.N, d.Key, d.Limit)
		if d.ID != 0 {
			fmt.Fprintf(&b, " by %x", d.ID)
		}
		if len(c.Results) > 0 {
			fmt.Fprintf(&b, ": %+v", c.Results[i])
		}
	}
	if c.Err != "" {
		fmt.Fprintf(&b, ": %s %s", c.Err, c.Text)
	}
	return b.String()
}

func (c soakCall) cached() bool {
	return len(c.Results) > 0 && c.Results[0].Source == ratelimit.SourceCache
}

// soakJudgement is the result of checking a group's calls.
type soakJudgement struct {
	operations int // calls whose order was checked
	cached     int // refusals from the cache
	unknown    int
	undecided  bool
	violations []violation
}

// judge checks the calls of one group in one round.
func (r soakRound) judge(g soakGroup, calls []soakCall) (j soakJudgement) {
	slices.SortFunc(calls, func(a, b soakCall) int { return cmp.Compare(a.Call, b.Call) })
	var history, cached []soakCall
	for _, c := range calls {
		switch {
		case c.Err == soakUnexpected:
			j.violations = append(j.violations,
				violation{"error: not permitted by the contract", []soakCall{c}})
		case c.cached():
			cached = append(cached, c)
		case c.Err != soakUnavailable:
			history = append(history, c)
		}
		if c.Err == soakUnknown {
			j.unknown++
		}
	}
	j.operations, j.cached = len(history), len(cached)
	for _, c := range cached {
		if wrong := r.judgeCached(c, calls); wrong != "" {
			j.violations = append(j.violations, violation{"cache: " + wrong, touching(calls, c)})
			break
		}
	}
	order := r.judgeOrder(history, calls, &j.undecided)
	for _, v := range []*violation{order, r.judgeLimit(history)} {
		if v != nil {
			j.violations = append(j.violations, *v)
		}
	}
	if v := judgeBooks(history); v != nil && !r.Clock {
		j.violations = append(j.violations, *v)
	}
	return j
}

// touching returns the calls up to c on c's first state.
func touching(calls []soakCall, c soakCall) (found []soakCall) {
	for _, o := range calls {
		if o.about(c.Demands[0].state()) != nil && o.Call <= c.Call &&
			(!o.cached() || o.Call == c.Call) {
			found = append(found, o)
		}
	}
	return found
}

// about returns c's demand on a state, or nil.
func (c soakCall) about(s soakState) *soakDemand {
	for i := range c.Demands {
		if c.Demands[i].Key == s.key && c.Demands[i].Limit.Name == s.limit {
			return &c.Demands[i]
		}
	}
	return nil
}

func (r soakRound) clock() linear.Clock {
	if r.Clock {
		return linear.Stepped
	}
	return linear.Steady
}

// judgeOrder checks the order of history. Its violation shows those of calls that matter, also
// those that are not in history because they are said to have recorded nothing.
func (r soakRound) judgeOrder(history, calls []soakCall, undecided *bool) *violation {
	var ops []conformance.Operation
	for _, c := range history {
		op := conformance.Operation{Client: c.Worker, Call: c.Call, Return: c.Return}
		for _, d := range c.Demands {
			op.Demands = append(op.Demands, d.demand())
		}
		for _, res := range c.Results {
			if op.Now = told(res); op.Now != told(c.Results[0]) {
				return &violation{"order: the results of one call are of several times",
					[]soakCall{c}}
			}
			op.Results = append(op.Results, res)
		}
		ops = append(ops, op)
	}
	err := linear.CheckRunning(ops, r.clock())
	*undecided = errors.Is(err, linear.ErrUndecided)
	if err == nil || *undecided {
		return nil
	}
	var lost *linear.Disorder
	if !errors.As(err, &lost) {
		return &violation{fmt.Sprintf("order: %v", err), history}
	}
	return &violation{fmt.Sprintf("order: %v; the last calls on the states of the last of these:",
		err), around(lost.Until(), calls)}
}

// around returns the last calls until a time on the states of the one that returned then.
func around(until time.Duration, calls []soakCall) (found []soakCall) {
	const shown = 40
	last := slices.IndexFunc(calls, func(c soakCall) bool { return c.Return == until })
	for _, c := range calls {
		if c.Call <= until && !c.cached() && (last < 0 || slices.ContainsFunc(calls[last].Demands,
			func(d soakDemand) bool { return c.about(d.state()) != nil })) {
			found = append(found, c)
		}
	}
	return found[max(0, len(found)-shown):]
}

// told returns the time of a decision by the server's clock.
func told(res ratelimit.Result) int64 { return timed.Now(res, time.Now().UnixMicro()) }

// soakHolds returns the answered demands that held units in a state, by their ID.
func soakHolds(calls []soakCall, s soakState) map[uint64]soakDemand {
	holds := make(map[uint64]soakDemand)
	for _, c := range calls {
		d := c.about(s)
		if d != nil && d.Op == driver.OpHold && d.N > 0 && admitted(c.Results) {
			holds[d.ID] = *d
		}
	}
	return holds
}

// soakRecord is what is known of the units of a call at the time at which they count.
type soakRecord struct {
	at, n, max int64
	fits       bool // they were admitted, not forced
}

// A soakHold is what is known of a hold in the order of calls. It times out between least and most,
// unless it is renewed by a call of unknown outcome.
type soakHold struct {
	soakRecord
	least, most int64
	late        bool  // it may have been brought back after its time-out
	ended       int64 // when it was settled last
}

// keep holds from now on. The deadline may be up to an eighth later than asked for.
func (h *soakHold) keep(now int64, timeout time.Duration) {
	h.late = h.late || h.least > 0 && now >= h.least
	h.least = max(h.least, now+timeout.Microseconds())
	h.most = max(h.most, now+(timeout+timeout/8).Microseconds()+1)
}

// judgeLimit checks the units in every window. On a clock that steps times say little, so it checks
// the total, which a step forward may raise by Max.
func (r soakRound) judgeLimit(history []soakCall) *violation {
	states := make(map[soakState][]soakCall)
	for _, c := range history {
		for _, d := range c.Demands {
			if d.Kind != kindFlight && d.Kind != kindMoney {
				s := d.state()
				states[s] = append(states[s], c)
			}
		}
	}
	for s, calls := range states {
		if wrong := r.limitBroken(s, calls); wrong != "" {
			return &violation{"limit: " + wrong, calls}
		}
	}
	return nil
}

func (r soakRound) limitBroken(s soakState, calls []soakCall) string {
	var records []soakRecord
	var window time.Duration
	reset := int64(math.MinInt64)
	held := make(map[uint64]*soakHold)
	for _, c := range calls {
		for i, d := range c.Demands {
			if d.Key == s.key && d.Limit.Name == s.limit && d.Op == driver.OpHold && d.N > 0 &&
				admitted(c.Results) {
				at := told(c.Results[i])
				held[d.ID] = &soakHold{soakRecord: soakRecord{at, d.N, d.Limit.Max, true}}
				held[d.ID].keep(at, d.Timeout)
			}
		}
	}
	for _, c := range byTime(calls, s) {
		for i, d := range c.Demands {
			if d.Key != s.key || d.Limit.Name != s.limit {
				continue
			}
			if window == 0 {
				window = d.Limit.Window
			}
			if d.Limit.Window != window || d.Op == driver.OpReset && (r.Clock || c.Err != "") {
				return "" // left to judgeOrder
			}
			if !admitted(c.Results) {
				continue
			}
			at := told(c.Results[i])
			switch h := held[d.ID]; {
			case d.Op == driver.OpReset:
				reset = max(reset, at)
			case d.Op == driver.OpTake, d.Op == driver.OpForce:
				records = append(records, soakRecord{at, d.N, d.Limit.Max, d.Op == driver.OpTake})
			case h == nil || c.Results[i].Units == 0:
			case d.Op == driver.OpHold && d.N == 0:
				h.keep(at, d.Timeout)
			case d.Op == driver.OpSettle && (h.late || at >= h.least):
				records = append(records, soakRecord{at, d.N, h.max, false})
			case d.Op == driver.OpSettle:
				records = append(records, soakRecord{at, max(0, d.N-h.n), h.max, false})
				h.n = min(h.n, d.N)
				records = append(records, h.soakRecord)
			}
		}
	}
	if r.Clock {
		return sumBroken(records)
	}
	// The order of records with one time is unknown. The order that admits most is assumed: what
	// fits before forced units, and that under a smaller Max before that under a larger.
	slices.SortFunc(records, func(a, b soakRecord) int {
		switch {
		case a.at != b.at:
			return cmp.Compare(a.at, b.at)
		case a.fits != b.fits && a.fits:
			return -1
		case a.fits != b.fits:
			return 1
		}
		return cmp.Compare(a.max, b.max)
	})
	for i, last := range records {
		if !last.fits || last.at <= reset {
			continue
		}
		used := int64(0)
		for _, o := range records[:i+1] {
			if o.at > last.at-window.Microseconds() && o.at > reset {
				used += o.n
			}
		}
		if used > last.max {
			return fmt.Sprintf("%d units of %d in the window that ends at %d",
				used, last.max, last.at)
		}
	}
	return ""
}

// byTime returns the calls without answers, and then the others in the order of their decisions on
// a state.
func byTime(calls []soakCall, s soakState) []soakCall {
	calls = slices.Clone(calls)
	at := func(c soakCall) int64 {
		for i, d := range c.Demands {
			if d.state() == s && len(c.Results) > 0 {
				return told(c.Results[i])
			}
		}
		return math.MinInt64
	}
	slices.SortStableFunc(calls, func(a, b soakCall) int { return cmp.Compare(at(a), at(b)) })
	return calls
}

func sumBroken(records []soakRecord) string {
	sum, most := int64(0), int64(0)
	for _, o := range records {
		if o.fits {
			sum, most = sum+o.n, max(most, o.max)
		}
	}
	if sum > 2*most {
		return fmt.Sprintf("%d units of %d within a window and a step", sum, most)
	}
	return ""
}

// A soakBook has what callers know of a state.
type soakBook struct {
	told, unknown int64                // units recorded, and of unknown outcome
	open          map[uint64]*soakHold // what is held
	tried         map[uint64]bool      // settlements and renewals of unknown outcome
	closed        bool                 // it cannot be checked
}

// bounds returns how many units are recorded or held at least and at most.
func (b *soakBook) bounds(now int64) (least, most int64) {
	least, most = b.told, b.told+b.unknown
	for id, h := range b.open {
		if h.n > 0 && (b.tried[id] || now < h.most) {
			most += h.n
		}
		if h.n > 0 && !b.tried[id] && now < h.least {
			least += h.n
		}
	}
	return least, most
}

// hold returns what is known of a hold.
func (b *soakBook) hold(id uint64) *soakHold {
	if b.open[id] == nil {
		b.open[id] = new(soakHold)
	}
	return b.open[id]
}

func (b *soakBook) enter(d soakDemand, c soakCall, res ratelimit.Result) {
	switch {
	case d.Limit.Window != longWindow, d.Op == driver.OpReset, d.Kind == kindMoney:
		b.closed = true
	case d.Op == driver.OpPeek:
	case c.Err == soakUnknown:
		b.tried[d.ID] = true
		b.unknown += d.N
	case !admitted(c.Results):
	case d.Op == driver.OpHold && d.N > 0:
		h := b.hold(d.ID)
		h.at, h.n = told(res), d.N
		h.keep(h.at, d.Timeout)
		b.tried[d.ID] = b.tried[d.ID] || h.ended == h.at // in an unknown order
	case d.Op == driver.OpHold:
		if res.Units > 0 {
			b.hold(d.ID).keep(told(res), d.Timeout)
		}
	case d.Op == driver.OpSettle:
		h := b.hold(d.ID)
		h.ended = told(res)
		if b.told += res.Units; res.Units == 0 && h.at == h.ended {
			b.tried[d.ID] = true
		} else {
			h.n = 0
		}
	default:
		b.told += d.N
	}
}

// judgeBooks compares what is recorded and held in the end with what callers were told.
func judgeBooks(history []soakCall) *violation {
	looks := make(map[soakState]bool)
	for _, c := range history {
		if c.Process == soakJudge && c.Err == "" {
			looks[c.Demands[0].state()] = true
		}
	}
	for s := range looks {
		b := soakBook{open: make(map[uint64]*soakHold), tried: make(map[uint64]bool)}
		for _, c := range byTime(history, s) {
			for i, d := range c.Demands {
				if d.state() != s {
					continue
				}
				var res ratelimit.Result
				if len(c.Results) > 0 {
					res = c.Results[i]
				}
				b.enter(d, c, res)
				if c.Process != soakJudge || c.Err != "" || b.closed {
					continue
				}
				least, most := b.bounds(told(res))
				got := d.Limit.Max - timed.Free(res)
				if got < min(least, d.Limit.Max) || got > most {
					return &violation{
						fmt.Sprintf("books: %d units are recorded or held, want %d to %d",
							got, least, most), touching(history, c)}
				}
			}
		}
	}
	return nil
}

// judgeCached returns what is wrong with a cached refusal, or "".
func (r soakRound) judgeCached(c soakCall, calls []soakCall) (wrong string) {
	for i, res := range c.Results {
		d := c.Demands[i]
		if !fitting(d) || res.Source != ratelimit.SourceCache ||
			res.Limit.Max != d.Limit.Max || res.Allowed != (res.RetryAfter <= 0) {
			return "the answer is not a refusal"
		}
	}
	if admitted(c.Results) {
		return "the answer is not a refusal"
	}
	wrong = "the server gave no such refusal"
	for _, source := range r.sources(c, calls) {
		passed := c.Call - source.Return
		switch {
		case source.Err != "": // answered after its caller had left
			return r.judgeFreed(c, calls)
		case passed >= soakCacheAge:
			wrong = fmt.Sprintf("the refusal is %v old", passed)
			continue
		}
		wrong = ""
		for i, res := range c.Results {
			was := source.Results[i].RetryAfter
			// A look after a step of the clock can find another refusal than any caller got.
			if res.RetryAfter > was-passed && !res.Allowed && !r.Clock &&
				!changedMeanwhile(source, c, i, calls) {
				wrong = fmt.Sprintf("RetryAfter is %v, but was %v, and %v have passed",
					res.RetryAfter, was, passed)
			}
		}
		if wrong == "" {
			return r.judgeFreed(c, calls)
		}
	}
	return wrong
}

// fitting reports whether d is admitted only if it fits.
func fitting(d soakDemand) bool {
	return d.Op == driver.OpTake || d.Op == driver.OpHold && d.N > 0
}

// judgeFreed returns what is wrong if a cached refusal is older than a settlement that freed units
// of its state, or than a reset, that the cache must know of.
func (r soakRound) judgeFreed(c soakCall, calls []soakCall) (wrong string) {
	if r.Clock {
		return ""
	}
	for i, d := range c.Demands {
		s := d.state()
		holds := soakHolds(calls, s)
		for _, o := range calls {
			freed := o.about(s)
			if freed == nil || !admitted(o.Results) || told(o.Results[0]) <= told(c.Results[i]) {
				continue
			}
			frees := freed.Op == driver.OpSettle && o.Results[0].Units > 0 &&
				freed.N < holds[freed.ID].N
			if !frees && freed.Op != driver.OpReset {
				continue
			}
			since := c.Call - o.Return
			if since > maxNoticeDelay || since > 0 && o.Process == c.Process {
				return fmt.Sprintf("older than what process %d has freed %v ago:\n%v",
					o.Process, since, o)
			}
		}
	}
	return ""
}

// sources returns the calls of the same process whose refusal may be the cached one that c got.
func (r soakRound) sources(c soakCall, calls []soakCall) (sources []soakCall) {
	for _, o := range calls {
		if o.Process == c.Process && !o.cached() && o.Call <= c.Return && r.isSource(o, c) {
			sources = append(sources, o)
		}
	}
	return sources
}

func (r soakRound) isSource(o, c soakCall) bool {
	if len(o.Demands) != len(c.Demands) || o.Err != "" && o.Err != soakUnknown ||
		o.Err == "" && admitted(o.Results) {
		return false
	}
	for i, d := range c.Demands {
		q, res := o.Demands[i], c.Results[i]
		if !fitting(q) || q.Key != d.Key || q.Limit != d.Limit ||
			res.Allowed && q.N < d.N || !res.Allowed && q.N > d.N {
			return false
		}
		if o.Err == "" && !r.Clock && told(o.Results[i]) > told(res) {
			return false
		}
	}
	return true
}

// changedMeanwhile reports whether the state of c's i-th demand may have changed since source was
// refused.
func changedMeanwhile(source, c soakCall, i int, calls []soakCall) bool {
	for _, o := range calls {
		if o.about(c.Demands[i].state()) != nil && o.Return >= source.Call &&
			o.Call <= c.Return && (o.Err == soakUnknown || o.Err == "" && admitted(o.Results)) {
			return true
		}
	}
	return false
}
