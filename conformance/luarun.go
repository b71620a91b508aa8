package conformance

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// luaRun is a random run of one kind of algorithm, whose parameters change.
type luaRun struct {
	eval   Eval
	kinds  []newAlgorithm
	seed   uint64
	rand   *rand.Rand
	key    string
	script string
	kind   luaKind

	a     driver.Algorithm
	now   int64
	state []byte // of the Go step
	ends  int64  // when the server's state expires; 0 if it has none

	last   luaCall // the call before
	stamps []int64 // when the last units were admitted
	ids    uint64  // of holds so far
}

// luaKind is what a run is for.
type luaKind uint8

const (
	ofAll     luaKind = iota // limits and instants of all kinds
	ofLarge                  // large numbers, whose products a double does not hold
	ofRecords                // many calls in a Window: if a state has records, more than its tail
)

// luaKinds are the kinds of runs with seeds that follow one another.
var luaKinds = [...]luaKind{ofAll, ofLarge, ofRecords, ofLarge}

// callsAtOnce is how many calls a server gets at once.
const callsAtOnce = 64

func newLuaRun(eval Eval, kinds []newAlgorithm, seed uint64) *luaRun {
	return &luaRun{eval: eval, kinds: kinds, seed: seed, rand: rand.New(rand.NewPCG(seed, 3)),
		key: luaKey(), now: begin(seed), kind: luaKinds[seed%uint64(len(luaKinds))]}
}

func (p *luaRun) play(ctx context.Context, rounds int) (err error) {
	if err := p.change(); err != nil {
		return err
	}
	if p.script, err = luaSource(p.key, p.a); err != nil {
		return err
	}
	defer func() {
		_, cleanErr := p.eval(context.WithoutCancel(ctx), "redis.call('DEL', KEYS[1], KEYS[2]) "+
			"return ''", []string{p.key, p.key + ":h"}, nil)
		err = errors.Join(err, cleanErr)
	}()
	for range rounds {
		if err := p.round(ctx); err != nil {
			return err
		}
	}
	return nil
}

// round decides some demands in Go, and then on the server.
func (p *luaRun) round(ctx context.Context) error {
	calls := make([]luaCall, callsAtOnce)
	for i := range calls {
		often := 12
		if p.kind == ofRecords {
			often = 200
		}
		if p.rand.IntN(often) == 0 {
			if err := p.change(); err != nil {
				return err
			}
		}
		p.decide(&calls[i])
	}
	answers, err := p.ask(ctx, calls)
	if err != nil {
		return err
	}
	for i := range calls {
		c := &calls[i]
		if c.how == "-" {
			p.ends = 0
		}
		if err := p.compare(c, answers[i]); err != nil {
			return fmt.Errorf("%w\n\tin %v", err, c)
		}
	}
	if p.a.Name() == logName && p.rand.IntN(2) == 0 {
		if last := answers[len(answers)-1]; !calls[len(calls)-1].spoiled {
			p.state = []byte(last.state) // Go continues with what Lua has written
		}
	}
	return nil
}

// change sets other parameters.
func (p *luaRun) change() (err error) {
	r := p.rand
	for range 100 {
		limit := driver.Limit{Name: "lua"}
		switch p.kind {
		case ofAll:
			limit.Max = pick(r, 1, 2, 3, 7, 40, 100, 1_000_003, driver.MaxUnits,
				1+r.Int64N(1<<r.IntN(41)))
			limit.Window = pick(r, driver.MinWindow, time.Second, window,
				2*time.Minute+7*time.Microsecond, time.Hour, driver.MaxWindow,
				driver.MinWindow+time.Duration(r.Int64N(1<<r.IntN(44)))*time.Microsecond)
		case ofLarge:
			limit.Max = pick(r, driver.MaxUnits, driver.MaxUnits-1, 1+r.Int64N(driver.MaxUnits))
			limit.Window = pick(r, driver.MaxWindow, driver.MaxWindow-time.Microsecond,
				driver.MinWindow+time.Duration(r.Int64N(31_000_000_000_000))*time.Microsecond)
		case ofRecords:
			limit.Max = pick(r, 30, 300, 1+r.Int64N(3000), 1_000_003)
			limit.Window = pick(r, time.Second, 2*time.Minute+7*time.Microsecond, time.Hour)
		}
		a := pick(r, p.kinds...)(limit)
		if err = a.Validate(); err != nil {
			continue
		}
		if p.a != nil && a.Script().Source != p.a.Script().Source {
			return fmt.Errorf("is another one for %v than for %v, want one Source for all of its "+
				"name", a.Limit(), p.a.Limit())
		}
		p.a = a
		return nil
	}
	return fmt.Errorf("no valid limit found: %w", err)
}

// decide draws a call and decides it in Go.
func (p *luaRun) decide(c *luaCall) {
	p.move()
	c.d, c.now, c.how = p.demand(), p.now, "+"
	_, holds := p.a.(driver.Holder)
	times, gone := 1, p.gone()
	if gone {
		p.state, c.how = nil, "-"
	}
	c.before = bytes.Clone(p.state)
	switch {
	case holds, gone:
	case p.rand.IntN(8) == 0:
		c.before, c.spoiled = p.spoil(p.state), true
		c.how = "=" + string(c.before)
	case c.d.Op == driver.OpTake && p.a.Script().Sums && p.rand.IntN(6) == 0:
		times = 2 + p.rand.IntN(30)
	}
	c.state = bytes.Clone(c.before)
	for range times {
		next, keep, res := c.d.Step(bytes.Clone(c.state), c.now)
		c.want = append(c.want, res)
		if keep != 0 {
			c.keep = keep
		}
		if keep > 0 {
			c.state = bytes.Clone(next)
		}
	}
	if c.spoiled {
		return
	}
	p.state, p.last = c.state, luaCall{d: c.d, now: c.now, want: c.want, keep: c.keep}
	if res := c.want[0]; res.Allowed && (c.d.Op == driver.OpTake || c.d.Op == driver.OpForce) {
		p.stamps = append(p.stamps[max(0, len(p.stamps)-32):], c.now)
	}
}

// gone reports whether to delete the state before the next call. A server may do so once keep has
// passed.
func (p *luaRun) gone() bool {
	_, holds := p.a.(driver.Holder)
	return !holds && p.last.keep > 0 && p.now >= p.last.now+p.last.keep.Microseconds() &&
		p.rand.IntN(2) == 0
}

// move moves the clock: to an instant around which decisions change, by a random time, or not at
// all.
func (p *luaRun) move() {
	r := p.rand
	span := p.a.Limit().Window.Microseconds()
	var last driver.Result
	if n := len(p.last.want); n > 0 {
		last = p.last.want[n-1]
	}
	if p.kind == ofRecords && r.IntN(60) > 0 {
		p.now += r.Int64N(span/pick[int64](r, 30, 300, 3000) + 1)
		return
	}
	near := func(d time.Duration) int64 {
		return p.last.now + d.Microseconds() - 1 + r.Int64N(3)
	}
	switch r.IntN(26) {
	case 0, 1, 2:
		p.now++
	case 3, 4, 5, 6, 7:
		p.now += r.Int64N(span/20 + 1)
	case 8, 9, 10:
		p.now = near(last.RetryAfter)
	case 11, 12:
		p.now = near(last.ResetAfter)
	case 13:
		p.now = near(p.last.keep)
	case 14:
		p.now += span - 1 + r.Int64N(3)
	case 15:
		p.now += r.Int64N(3 * span)
	case 16:
		p.now -= r.Int64N(span/20 + 1)
	case 17:
		p.now -= r.Int64N(span)
	case 18:
		p.now -= pick(r, span-1+r.Int64N(3), span+r.Int64N(span))
	case 19:
		if holder, ok := p.a.(driver.Holder); ok {
			p.now += r.Int64N(2 * holder.HoldTimeout().Microseconds())
		}
	case 20, 21: // where windows that are aligned with the epoch begin
		p.now += span - p.now%span - 1 + r.Int64N(3)
	case 22:
		if r.IntN(8) == 0 {
			p.now = 1 + r.Int64N(farFuture)
		}
	}
	if p.now < 1 || p.now > farFuture {
		p.now = begin(r.Uint64())
	}
}

// demand returns a random demand that CheckTake accepts.
func (p *luaRun) demand() driver.Demand {
	r, most := p.rand, p.a.Limit().Max
	d := driver.Demand{Key: p.key, Algorithm: p.a, N: 1}
	switch r.IntN(8) {
	case 0, 6:
		d.N = 1 + r.Int64N(most)
	case 1:
		d.N = 1 + r.Int64N(min(most, 7))
	case 2:
		d.N = most
	case 3: // about what is free
		if n := len(p.last.want); n > 0 {
			d.N = min(max(1, p.last.want[n-1].Remaining-1+r.Int64N(3)), most)
		}
	}
	few := p.kind == ofRecords && r.IntN(60) > 0
	if few {
		d.N = 1 + r.Int64N(min(most, 3))
	}
	h, ok := p.a.(driver.Holder)
	if ok && (h.InFlight() || r.IntN(3) > 0) {
		p.holds(&d, h)
		return d
	}
	switch r.IntN(20) {
	case 0, 1, 2, 3:
		d.Op = driver.OpPeek
	case 4:
		d.At = max(0, p.now-r.Int64N(p.a.Limit().Window.Microseconds()))
		if len(p.stamps) > 0 && r.IntN(2) == 0 {
			d.At = max(0, pick(r, p.stamps...)-1+r.Int64N(3))
		}
		fallthrough
	case 5, 6:
		d.Op = driver.OpForce
		if few {
			break
		}
		d.N = min(driver.MaxUnits, pick(r, 1, 3, most, most+1, 2*most, 1+r.Int64N(2*most)))
		if r.IntN(8) == 0 {
			d.N = driver.MaxUnits
		}
	case 7:
		if r.IntN(3) == 0 && !few {
			d.Op, d.N = driver.OpReset, pick(r, -1, 0, 1, driver.MaxUnits+1)
		}
	}
	return d
}

// holds makes d a demand about a hold, mostly one of the last.
func (p *luaRun) holds(d *driver.Demand, h driver.Holder) {
	r := p.rand
	before := func() uint64 { return max(1, p.ids-min(p.ids, uint64(r.IntN(8)*r.IntN(8)))) }
	d.ID = before() << 40
	switch r.IntN(16) {
	case 0, 1, 2, 3, 4:
		p.ids++
		d.ID = p.ids << 40
		fallthrough
	case 5:
		d.Op = driver.OpHold
	case 6, 7:
		d.Op, d.N = driver.OpHold, 0
	case 8:
		d.Op = driver.OpPeek
	case 9:
		d.Op, d.ID = driver.OpPeek, 0
	case 10:
		if r.IntN(8) == 0 {
			d.Op, d.ID = driver.OpReset, 0
			break
		}
		fallthrough
	case 11, 12:
		d.Op, d.N = driver.OpSettle, 0
	default:
		d.Op = driver.OpSettle
		if r.IntN(8) == 0 {
			d.N = 1 + r.Int64N(min(driver.MaxUnits, 3*h.Limit().Max))
		}
	}
	if d.Op == driver.OpHold && r.IntN(3) == 0 {
		length := int64(h.HoldTimeout())
		d.HoldTimeout = time.Duration(max(length/16+1000, r.Int64N(16*length))).
			Truncate(time.Microsecond)
	}
}

// spoil returns a state that no step wrote, mostly: a changed copy, with a number at a bound, or
// random bytes.
func (p *luaRun) spoil(state []byte) []byte {
	r := p.rand
	b := bytes.Clone(state)
	if len(b) == 0 || r.IntN(8) == 0 {
		b = make([]byte, 1+r.IntN(luaTail))
		for i := range b {
			b[i] = byte(r.Uint32() >> r.IntN(32))
		}
	}
	switch r.IntN(6) {
	case 0:
		b[r.IntN(len(b))] ^= 1 << r.IntN(8)
	case 1:
		b = b[:r.IntN(len(b))]
	case 2:
		b = append(b, byte(r.Uint32()))
	default:
		var number [8]byte
		bound := uint64(1) << pick(r, 40, 44, 45, 48, 50, 52, 53, r.IntN(64)) // numbers of limits
		binary.BigEndian.PutUint64(number[:], pick(r, 1, bound, bound, bound, uint64(p.now),
			r.Uint64()>>r.IntN(64))-1+r.Uint64N(3))
		from := r.IntN(len(b))
		if r.IntN(4) > 0 {
			from -= from % 8
		}
		copy(b[from:], number[:])
	}
	return b
}
