package holdmodel

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// A Kind makes limits with holds of one algorithm, as they are tested and as the model has them.
type Kind func(driver.Limit, time.Duration) (driver.Holder, Limit)

// A Player makes random demands on one key, on a clock that jumps, under parameters that change.
type Player struct {
	Key   Key
	Limit Limit
	Now   int64
	// Calm players do nothing that makes a debt: no Force, no late or larger settlement, no late
	// renewal, no smaller Max and no step back.
	Calm bool

	unit   time.Duration
	rand   *rand.Rand
	kind   Kind
	holder driver.Holder
	ids    []uint64
	retry  int64 // when the last refusal ends
	again  driver.Demand
	trace  []string
}

// NewPlayer returns a player with a clock that begins at now. Windows and time-outs are unit or
// longer.
func NewPlayer(r *rand.Rand, kind Kind, now int64, unit time.Duration) *Player {
	p := &Player{rand: r, kind: kind, Now: now, retry: now, unit: unit}
	for range 6 {
		p.ids = append(p.ids, 1+r.Uint64()>>r.IntN(60))
	}
	p.change()
	return p
}

// change chooses other parameters.
func (p *Player) change() {
	r := p.rand
	limit := driver.Limit{Name: "l", Max: pick[int64](r, 1, 2, 5, 10, 100, 1<<40),
		Window: pick(r, p.unit, 7*p.unit+time.Microsecond, 60*p.unit, 3600*p.unit)}
	if p.Calm && p.holder != nil {
		limit = p.Limit.Limit
	}
	timeout := pick(r, p.unit, p.unit, 3*p.unit+time.Microsecond, 60*p.unit, 3600*p.unit)
	p.holder, p.Limit = p.kind(limit, timeout)
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// Next returns the next demand, which is made at the time Now.
func (p *Player) Next() driver.Demand {
	if p.rand.IntN(25) == 0 {
		p.change()
	}
	p.move()
	return p.demand()
}

// Do returns what the model decides.
func (p *Player) Do(d driver.Demand) (want driver.Result) {
	want = p.Key.Do(p.Limit, p.Now, d)
	if !want.Allowed {
		p.retry, p.again = p.Now+want.RetryAfter.Microseconds(), d
	}
	if len(p.trace) == 12 {
		p.trace = p.trace[1:]
	}
	p.trace = append(p.trace, fmt.Sprintf("at %d %v %d (%d) of %v (%v), ID %d, Hold %v, At %d: %+v",
		p.Now, d.Op, d.N, d.Least, p.Limit.Limit, p.Limit.Timeout, d.ID, d.HoldTimeout, d.At, want))
	return want
}

// Trace returns the last demands, and what the model has decided.
func (p *Player) Trace() []string { return p.trace }

const year = int64(365 * 24 * time.Hour / time.Microsecond)

// move moves the clock: to an instant around which decisions change, by a random time, or not at
// all.
func (p *Player) move() {
	timeout, window := p.Limit.Timeout.Microseconds(), p.Limit.Limit.Window.Microseconds()
	now := p.Now
	switch p.rand.IntN(20) {
	case 0, 1, 2:
		now++
	case 3, 4:
		now += p.rand.Int64N(timeout)
	case 5:
		now += p.rand.Int64N(window)
	case 6, 7:
		now = p.retry - p.rand.Int64N(2)
	case 8, 9, 10:
		if len(p.Key.Holds) > 0 {
			now = pick(p.rand, p.Key.Holds...).Deadline - p.Key.offset - p.rand.Int64N(2)
			now += pick(p.rand, 0, 0, 0, 0, remembered)
		}
	case 11:
		now += pick(p.rand, timeout, window, 24*timeout, remembered, 9*year)
	case 12:
		now -= p.rand.Int64N(timeout + 1)
	case 13:
		now -= timeout + p.rand.Int64N(3)
	case 14:
		if p.rand.IntN(4) == 0 {
			now -= pick(p.rand, 10*timeout, 3*window, p.rand.Int64N(9*year))
		}
	}
	if now < p.Now && p.Calm {
		return
	}
	if now > 0 && now < 4_400_000_000_000_000 {
		p.Now = now
	}
}

// demand returns a random demand that CheckTake accepts.
func (p *Player) demand() driver.Demand {
	most := p.Limit.Limit.Max
	d := driver.Demand{Key: "k", Algorithm: p.holder, Op: driver.OpTake, N: 1}
	if p.rand.IntN(3) > 0 {
		d.N = 1 + p.rand.Int64N(min(most, 12))
	}
	id := pick(p.rand, p.ids...)
	switch op := p.rand.IntN(24); {
	case op < 3:
		d.Op = driver.OpPeek
	case op < 5:
		d.Op, d.ID = driver.OpPeek, id
	case op < 12:
		d.Op, d.ID, d.HoldTimeout = driver.OpHold, id, p.length()
	case op < 15:
		d.Op, d.ID, d.HoldTimeout, d.N = driver.OpHold, id, p.length(), 0
	case op < 20:
		d.Op, d.ID = driver.OpSettle, id
		d.N = p.rand.Int64N(d.N+1) * pick[int64](p.rand, 1, 1, 2)
	case op == 20:
		d.Op, d.N = driver.OpForce, pick(p.rand, 1, 3, min(most, 1<<20)+1)
		d.At = pick(p.rand, 0, p.Now-p.rand.Int64N(p.Limit.Limit.Window.Microseconds()))
	case op == 21 && p.rand.IntN(6) == 0:
		d.Op = driver.OpReset
	}
	if p.again.Key != "" && p.Now >= p.retry-1 && p.Now <= p.retry && p.rand.IntN(2) == 0 &&
		p.again.LeastUnits() <= most {
		d, d.Algorithm = p.again, p.holder
		d.HoldTimeout = 0
	}
	if p.Limit.Inside == nil && (d.Op == driver.OpTake || d.Op == driver.OpForce) {
		d.Op, d.ID, d.At = driver.OpHold, id, 0
		d.N = min(d.N, most)
	}
	if takes := d.Op == driver.OpTake || d.Op == driver.OpHold; takes && d.Least == 0 &&
		d.N > 0 && p.rand.IntN(5) == 0 {
		d.Least = 1 + p.rand.Int64N(d.N)
		d.N += pick(p.rand, 0, 1, min(most, 12), driver.MaxUnits-d.N)
	}
	if p.Calm {
		d = p.calm(d)
	}
	return d
}

// length returns how long to hold.
func (p *Player) length() time.Duration {
	t := p.Limit.Timeout
	least := (t/16 + time.Microsecond - 1).Truncate(time.Microsecond)
	return pick(p.rand, 0, 0, least, t/3, t, 5*t, 16*t).Truncate(time.Microsecond)
}

// calm returns d, or a demand that makes no debt.
func (p *Player) calm(d driver.Demand) driver.Demand {
	switch d.Op {
	case driver.OpForce, driver.OpReset:
		d.Op, d.N, d.At = driver.OpTake, 1, 0
	case driver.OpHold, driver.OpSettle:
		if d.Op == driver.OpHold && d.N > 0 {
			return d
		}
		open := int64(0)
		for _, h := range p.Key.Holds {
			if h.ID == d.ID && h.Deadline > p.Now {
				open = h.Units
			}
		}
		d.N = min(d.N, open)
		if open == 0 {
			d.Op, d.N, d.ID, d.HoldTimeout = driver.OpPeek, 1, 0, 0
		}
	}
	return d
}

// Holder returns the limit as it is tested.
func (p *Player) Holder() driver.Holder { return p.holder }
