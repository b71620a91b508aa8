package decision

import (
	"fmt"
	"math"
	"slices"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/cmd/ratelimit/algorithms"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
	"github.com/truewindow/ratelimit/driver"
)

// Bounds of a call, so that a client cannot make it arbitrarily slow.
const (
	maxRequests = 256
	maxUses     = driver.MaxDemands // limits and keys
)

// check returns an error for a call that is wrong whatever the limits.
func check(requests []Request, opts *Options) error {
	switch {
	case len(requests) == 0 || len(requests) > maxRequests:
		return fmt.Errorf("%w demand: %d requests, not between 1 and %d",
			ratelimit.ErrInvalid, len(requests), maxRequests)
	case (opts.Each || opts.Always) && opts.Hold != nil:
		return fmt.Errorf("%w options: requests that are held are decided together, and not "+
			"always charged", ratelimit.ErrInvalid)
	case opts.Peek && opts.Force || opts.Hold != nil && (opts.Peek || opts.Force):
		return fmt.Errorf("%w options: more than one of Peek, Force and Hold",
			ratelimit.ErrInvalid)
	case opts.Wait < 0 || opts.Wait > 0 && opts.Hold == nil:
		return fmt.Errorf("%w options: Wait is %v, and needs a Hold",
			ratelimit.ErrInvalid, opts.Wait)
	case opts.Hold != nil && *opts.Hold < 0:
		return fmt.Errorf("%w options: Hold is %v", ratelimit.ErrInvalid, *opts.Hold)
	}
	for i := range requests {
		if requests[i].N < 0 {
			return fmt.Errorf("%w demand: request %d has %d units",
				ratelimit.ErrInvalid, i+1, requests[i].N)
		}
	}
	return nil
}

// find finds the uses of requests.
func (p *plan) find(requests []Request) error {
	for i := range requests {
		r := &requests[i]
		if r.Limit == "" {
			p.matches = p.inForce.set.Match(p.matches, r.Domain, r.Descriptor)
		} else if err := p.matchNamed(i, r); err != nil {
			return err
		}
		p.ends = append(p.ends, len(p.matches))
	}
	replaced := p.replaced()
	from := 0
	for i, end := range p.ends {
		for _, m := range p.matches[from:end] {
			// A limit that admits everything is not replaced: its status says so, as that of
			// envoyproxy/ratelimit does.
			if slices.Contains(replaced, m.Limit.Name) && !m.Rate.Unlimited ||
				p.opts.NoInFlight && isInFlight(m.Variant) {
				continue
			}
			if err := p.add(i, m, &requests[i]); err != nil {
				return err
			}
		}
		from, p.ends[i] = end, len(p.statuses)
	}
	if p.opts.Estimate && !slices.ContainsFunc(p.uses, holdsUnits) {
		p.opts.Hold, p.opts.Peek, p.estimated = nil, true, true
	}
	for i := range p.uses {
		if err := p.prepare(&p.uses[i]); err != nil {
			return err
		}
	}
	if most := p.opts.MostHeld; most > 0 && p.opts.Hold != nil && p.held() > most {
		return ErrTooManyHeld
	}
	return nil
}

// held returns how many uses an ID has.
func (p *plan) held() (n int) {
	for i := range p.uses {
		if u := &p.uses[i]; u.role == enforced && isHolder(u.variant) {
			n++
		}
	}
	return n
}

// replaced returns the names of the limits that do not apply beside others of the call.
func (p *plan) replaced() (names []string) {
	for _, m := range p.matches {
		names = append(names, m.Limit.Replaces...)
	}
	return names
}

// add adds a match of a request to the uses.
func (p *plan) add(request int, m rules.Match, r *Request) error {
	if may := p.opts.MayUse; may != nil && !may(m.Limit.Name) {
		return &RequestError{Request: request, Limit: ratelimit.Limit{Name: m.Limit.Name},
			Err: ErrNotAllowed}
	}
	var limiter *ratelimit.Limiter
	if r.Override == nil {
		limiter = p.inForce.limiters[m.Number]
	} else {
		var err error
		if m, limiter, err = p.inForce.override(m, *r.Override); err != nil {
			return err
		}
	}
	at := p.index(request, m)
	if at < 0 {
		tooMany := len(p.uses) >= maxUses
		switch {
		case tooMany && !r.Descriptor.Spelled():
			return fmt.Errorf("%w demand: the requests have more than %d limits and keys",
				ratelimit.ErrInvalid, maxUses)
		case tooMany && (m.Limit.Shadow || len(p.uses) > maxUses):
			return nil
		}
		at = len(p.uses)
		p.uses = append(p.uses, use{
			request: request, named: r.Limit != "", limiter: limiter, variant: m.Variant,
			status: Status{Key: m.Key}, tooMany: tooMany})
	}
	u := &p.uses[at]
	if m.Rate.Less(u.variant.Rate) { // one history is decided under one rate
		u.variant, u.limiter = m.Variant, limiter
	}
	n := r.N
	if m.Limit.Algorithm == algorithms.InFlight && r.Limit == "" {
		n = min(n, 1) // it is one call, whatever it costs
	}
	u.n += min(n, math.MaxInt64-u.n)
	u.used = u.used || r.Used && n > 0 && m.Limit.Quota
	p.statuses = append(p.statuses, at)
	return nil
}

// index returns the index of the use of a match, or -1.
func (p *plan) index(request int, m rules.Match) int {
	for i := range p.uses {
		u := &p.uses[i]
		if u.variant.Limit == m.Limit && u.status.Key == m.Key &&
			(!p.opts.Each || u.request == request) {
			return i
		}
	}
	return -1
}
