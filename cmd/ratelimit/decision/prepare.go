package decision

import (
	"fmt"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
	"github.com/truewindow/ratelimit/driver"
)

// prepare sets what is known about a use before the store is asked.
func (p *plan) prepare(u *use) error {
	v, limit := u.variant, u.variant.Limit
	s := &u.status
	s.Limit, s.Rate, s.Shadow, s.Allowed = limit, v.Rate, limit.Shadow, true
	s.Result = ratelimit.Result{Allowed: true, Limit: driver.Limit{
		Name: limit.Name, Max: v.Rate.Units, Window: v.Rate.Window}}
	switch {
	case u.tooMany:
		u.refuse()
		return nil
	case v.Rate.Unlimited:
		s.Result.Remaining = driver.MaxUnits
		return nil
	case u.limiter == nil:
		u.refuse()
		return nil
	}
	s.Result.Limit = u.limiter.Limits()[0]
	if p.opts.Force && (u.n == 0 || isBlock(v)) {
		return nil
	}
	holds := p.opts.Hold != nil && isHolder(v)
	if p.opts.Estimate {
		u.estimate()
	}
	u.role = enforced
	switch {
	case isBlock(v):
		u.n = 0 // its units are the time of a block
	case u.n == 0:
		return p.reach(u)
	case isInFlight(v) && !holds && !p.opts.Peek:
		return u.wrong(ErrNeedsHold)
	case holds && !limit.Shadow && !p.opts.Estimate && !MayHold(v.Algorithm, *p.opts.Hold):
		return u.wrong(ErrHoldRange)
	case (limit.Always || p.opts.Always || p.opts.Force || u.used) && !holds && !p.opts.Peek:
		if u.role = recorded; u.n > driver.MaxUnits && !p.opts.Always && !u.used {
			return u.wrong(fmt.Errorf("%w demand: %d units, not at most %d",
				ratelimit.ErrInvalid, u.n, driver.MaxUnits))
		}
		return nil
	case u.n > u.limiter.Max():
		charged := limit.Always && p.opts.Peek // whatever its limit is
		if u.named && !limit.Shadow && !charged {
			return u.wrong(driver.ErrExceedsLimit)
		}
		u.refuse()
		return nil
	}
	if limit.Shadow {
		u.role = tried
	}
	return nil
}

// estimate makes the units of u no more than can be admitted.
func (u *use) estimate() {
	most := u.limiter.Max()
	if isInFlight(u.variant) {
		most = 1
	}
	u.n = min(u.n, most)
}

// holdsUnits reports whether u is one of a limit that holds units, and not calls in flight.
func holdsUnits(u use) bool {
	return isHolder(u.variant) && !isInFlight(u.variant) && !u.variant.Limit.Shadow
}

// refuse makes u a refusal without the store.
func (u *use) refuse() {
	u.role, u.status.Allowed, u.status.Never = unasked, false, true
	u.status.Result.Allowed = false
}

// reach makes u, which asks whether a unit is free, admit until more was recorded than the limit
// admits, if the options say so: a limit with a unit more and the same history has a unit free.
func (p *plan) reach(u *use) error {
	if u.variant.Limit.Shadow {
		u.role = tried
	}
	rate := u.variant.Rate
	if !p.opts.Reached || rate.Units >= driver.MaxUnits || isInFlight(u.variant) ||
		u.variant.Limit.Algorithm == "bucket" {
		return nil
	}
	rate.Units++
	match := rules.Match{Variant: u.variant, Key: u.status.Key}
	_, limiter, err := p.inForce.override(match, rate)
	if err != nil {
		return err
	}
	u.limiter, u.beyond = limiter, true
	return nil
}
