//go:build !race

package exhaustive

import (
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// A plain is the history of one key under one limit, decided by the sentences of package driver: a
// log of units, and holds. Times are in µs on the store's clock. It shares no code with package
// algorithm, and it is comparable.
type plain struct {
	log    [mostCalls]record // in order, the unused ones zero
	holds  [clients]hold     // by client
	behind clock
}

type record struct {
	at, units int64
	debt      int64 // of units: recorded whether they fit or not
}

// A hold counts until its deadline. Until a day later it is remembered.
type hold struct {
	units, deadline int64
	since           int64 // when its units count once they are settled
	debt            bool  // held whether it fits or not
}

// A clock is that of the holds, which does not go back while they matter.
type clock struct {
	last, offset int64
	timedOut     int64 // the last deadline that has passed
}

// A rule is a limit, with holds if it has a time-out, and only with holds if it has no window.
type rule struct {
	most            int64
	window, timeout int64 // µs
}

const day = int64(24 * time.Hour / time.Microsecond)

// decide decides c under r at a time and changes p.
func (p *plain) decide(r rule, now int64, c call) driver.Result {
	if c.op == driver.OpReset {
		*p = plain{}
		return driver.Result{Allowed: true, Remaining: r.most}
	}
	if c.least > 0 {
		c = c.part(p.free(r, now))
	}
	p.stepBack(r, now)
	q := *p
	t, holds := q.advance(r, now)
	var res driver.Result
	switch {
	case c.op == driver.OpForce:
		q.force(r, now, c.n, c.at)
		res = driver.Result{Allowed: true, Units: c.n}
	case c.op == driver.OpSettle:
		holds = holds || q.holds[c.client].units > 0
		res = driver.Result{Allowed: true, Units: q.settle(r, now, t, c)}
	case c.op == driver.OpHold && c.n == 0:
		res = driver.Result{Allowed: true, Units: q.renew(r, now, t, c)}
		holds = holds || res.Units > 0
	case !q.fits(r, now, t, c):
		res.RetryAfter = micros(q.retryAfter(r, now, c))
	case c.op == driver.OpHold:
		res = driver.Result{Allowed: true, Units: q.hold(r, now, t, c)}
		holds = true
	case c.op == driver.OpTake:
		q.record(r, q.logTime(now), c.n, 0)
		res = driver.Result{Allowed: true, Units: c.n}
	default:
		res.Allowed = true
	}
	res.Remaining, res.ResetAfter = q.left(r, now, t)
	switch {
	case holds:
		q.behind.last = max(q.behind.last, t)
		q.forgetHolds(t)
		*p = q
	case q.log != p.log:
		p.log = q.log
		if q.empty(t) {
			p.holds, p.behind = [clients]hold{}, clock{}
		}
	}
	return res
}

// peek returns the answer to c in a call of several demands, before any of them is applied.
func (p *plain) peek(r rule, now int64, c call) driver.Result {
	always := c.op == driver.OpForce || c.op == driver.OpReset || c.op == driver.OpSettle ||
		c.op == driver.OpHold && c.n == 0
	if always {
		c = call{n: 1}
	} else if c.least > 0 {
		c.n, c.least = c.least, 0
	}
	c.op = driver.OpPeek
	res := p.decide(r, now, c)
	if always {
		res.Allowed, res.RetryAfter = true, 0
	}
	return res
}

// free returns the units that are free.
func (p plain) free(r rule, now int64) int64 {
	return p.decide(r, now, call{op: driver.OpPeek, n: 1}).Remaining
}

// stepBack makes up for a clock that was set back by more than a window: the log goes back with it.
func (p *plain) stepBack(r rule, now int64) {
	back := p.newest() - now
	if r.window == 0 || back <= r.window {
		return
	}
	for i := range p.log {
		if p.log[i].units > 0 {
			p.log[i].at -= back
		}
	}
}

// newest returns the time of the newest record, or 0.
func (p *plain) newest() (at int64) {
	for _, r := range p.log {
		at = max(at, r.at)
	}
	return at
}

// logTime returns the time by which the log decides: it waits until a clock that was set back has
// caught up.
func (p *plain) logTime(now int64) int64 { return max(now, p.newest()) }

// used returns the units in the window that ends now.
func (p *plain) used(r rule, now int64) (units int64) {
	edge := p.logTime(now) - r.window
	for _, rec := range p.log {
		if rec.at > edge {
			units += rec.units
		}
	}
	return units
}

// advance returns the time of the holds, and whether their clock was changed. It forgets holds.
func (p *plain) advance(r rule, now int64) (t int64, changed bool) {
	b := &p.behind
	if back := b.last - b.offset - now; back > r.timeout {
		b.offset += back
		changed = true
	}
	t = max(b.last, now+b.offset)
	for i, h := range p.holds {
		if h.deadline <= t {
			b.timedOut = max(b.timedOut, h.deadline)
		}
		if h.deadline <= t-day {
			p.holds[i] = hold{}
		}
	}
	if p.empty(t) {
		p.holds, p.behind = [clients]hold{}, clock{}
		return now, false
	}
	return t, changed
}

// empty reports whether nothing is held or remembered.
func (p *plain) empty(t int64) bool {
	for _, h := range p.holds {
		if h.deadline > t {
			return false
		}
	}
	return p.behind.timedOut <= t-day
}

func (p *plain) forgetHolds(t int64) {
	if p.empty(t) {
		p.holds, p.behind = [clients]hold{}, clock{}
	}
}

// held returns the units of the holds that have not timed out, but for one of a client.
func (p *plain) held(t int64, but int) (units int64) {
	for i, h := range p.holds {
		if i != but && h.deadline > t {
			units += h.units
		}
	}
	return units
}

const nobody = -1

// fits reports whether c fits beside all else, or holds as much already.
func (p *plain) fits(r rule, now, t int64, c call) bool {
	if c.client != nobody && p.open(t, c.client) >= c.n {
		return true
	}
	return p.used(r, now)+p.held(t, c.client)+c.n <= r.most
}

// open returns the units that a client holds.
func (p *plain) open(t int64, client int) int64 { return p.held(t, nobody) - p.held(t, client) }

// retryAfter returns when c fits if nothing else happens: when a record leaves the window, or a
// hold times out.
func (p *plain) retryAfter(r rule, now int64, c call) int64 {
	wait := int64(-1)
	try := func(at int64) {
		later := *p
		t, _ := later.advance(r, at)
		if at > now && (wait < 0 || at-now < wait) && later.fits(r, at, t, c) {
			wait = at - now
		}
	}
	for _, rec := range p.log {
		try(rec.at + r.window)
	}
	for _, h := range p.holds {
		try(h.deadline - p.behind.offset)
	}
	return wait
}

// left returns what is free, and when all is.
func (p *plain) left(r rule, now, t int64) (remaining int64, reset time.Duration) {
	free, wait := r.most, int64(0)
	if r.window > 0 {
		if used := p.used(r, now); used > 0 {
			free, wait = max(0, free-used), p.newest()+r.window-now
		}
	}
	for _, h := range p.holds {
		if h.deadline > t {
			wait = max(wait, h.deadline-p.behind.offset-now)
		}
	}
	return max(0, free-p.held(t, nobody)), micros(wait)
}

// record records units now, and drops what has left the window.
func (p *plain) record(r rule, at, units, debt int64) {
	n := 0
	for _, rec := range p.log {
		if rec.units > 0 && rec.at > at-r.window {
			p.log[n] = rec
			n++
		}
	}
	clear(p.log[n:])
	if n > 0 && p.log[n-1].at == at {
		p.log[n-1].units, p.log[n-1].debt = p.log[n-1].units+units, p.log[n-1].debt+debt
		return
	}
	p.log[n] = record{at, units, debt}
}

// force records units whether they fit or not: at the first record of a time or later, if there is
// one in the window.
func (p *plain) force(r rule, now, units, at int64) { p.forceDebt(r, now, units, at, units) }

func (p *plain) forceDebt(r rule, now, units, at, debt int64) {
	t := p.logTime(now)
	for i, rec := range p.log {
		if at > 0 && rec.at >= at && rec.at > t-r.window {
			p.log[i].units, p.log[i].debt = rec.units+units, rec.debt+debt
			return
		}
	}
	p.record(r, t, units, debt)
}

func (p *plain) hold(r rule, now, t int64, c call) (units int64) {
	own := hold{units: c.n, since: p.logTime(now)}
	if before := p.holds[c.client]; before.deadline > t && before.units >= c.n {
		own.units, own.since, own.debt = before.units, before.since, before.debt
	}
	return p.place(r, t, c, own)
}

func (p *plain) renew(r rule, now, t int64, c call) (units int64) {
	own := p.holds[c.client]
	if own.units == 0 {
		return 0
	}
	if own.deadline <= t {
		own.since, own.debt = p.logTime(now), true
	}
	return p.place(r, t, c, own)
}

// place gives a client a hold. It never ends sooner than before.
func (p *plain) place(r rule, t int64, c call, own hold) (units int64) {
	own.deadline = t + r.timeout
	if c.long {
		own.deadline += r.timeout
	}
	if before := p.holds[c.client]; before.deadline > t {
		own.deadline = max(own.deadline, before.deadline)
	}
	p.holds[c.client] = own
	return own.units
}

// settle ends a hold and records what was used: what was held as of the time of the hold.
func (p *plain) settle(r rule, now, t int64, c call) (units int64) {
	own := p.holds[c.client]
	if own.units == 0 {
		return 0
	}
	p.holds[c.client] = hold{}
	if r.window == 0 || c.n == 0 {
		return 0
	}
	held, debt := min(c.n, own.units), int64(0)
	if own.debt || own.deadline <= t {
		debt = held
	}
	p.forceDebt(r, now, held, own.since, debt)
	if c.n > held {
		p.force(r, now, c.n-held, 0)
	}
	return c.n
}

// needed returns the units in the window and on hold that had to fit: they are at most r.most
// together, unless the clock was set back or the limit has changed.
func (p plain) needed(r rule, now int64) (units int64) {
	t, _ := p.advance(r, now)
	for _, rec := range p.log {
		if rec.at > p.logTime(now)-r.window {
			units += rec.units - rec.debt
		}
	}
	for _, h := range p.holds {
		if h.deadline > t && !h.debt {
			units += h.units
		}
	}
	return units
}

func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }
