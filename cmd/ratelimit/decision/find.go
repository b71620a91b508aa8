package decision

import (
	"fmt"
	"math"
	"slices"
	"sync"

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

// A call is one call of Decide.
type call struct {
	decider  *Decider
	inForce  *inForce
	opts     Options
	matches  []rules.Match // of all requests that are left after Replaces
	uses     []use
	ends     []int // for each request: the length of statuses after it
	statuses []int // for each status: the index of its use
	claims   []ratelimit.Claim
	claimed  []*use // of claims

	estimated bool // the Peek is in place of a Hold that is an Estimate
}

// A use is a limit and a key in a call, with the units of all its requests.
type use struct {
	role    role
	request int  // the first one
	named   bool // the request names the limit
	n       int64
	// tooMany refuses a call with too many uses in which a path is spelled oddly: whoever sends
	// that must not get an error, which Envoy admits.
	tooMany bool
	beyond  bool               // the limiter admits a unit more than the rate; see Options.Reached
	limiter *ratelimit.Limiter // nil if the rate has no algorithm
	variant *rules.Variant
	status  Status
}

// A role says how a use is decided.
type role uint8

const (
	unasked  role = iota // without the store
	enforced             // all together
	recorded             // whether it fits or not
	tried                // after an admission, for its counts
)

var calls = sync.Pool{New: func() any { return new(call) }}

// release ends the use of c, which must not keep keys of users.
func (c *call) release() {
	clear(c.matches)
	clear(c.uses)
	clear(c.claims)
	clear(c.claimed)
	*c = call{
		matches: c.matches[:0], uses: c.uses[:0], ends: c.ends[:0], statuses: c.statuses[:0],
		claims: c.claims[:0], claimed: c.claimed[:0],
	}
	calls.Put(c)
}

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
func (c *call) find(requests []Request) error {
	for i := range requests {
		r := &requests[i]
		if r.Limit == "" {
			c.matches = c.inForce.set.Match(c.matches, r.Domain, r.Descriptor)
		} else if err := c.name(i, r); err != nil {
			return err
		}
		c.ends = append(c.ends, len(c.matches))
	}
	replaced := c.replaced()
	from := 0
	for i, end := range c.ends {
		for _, m := range c.matches[from:end] {
			// A limit that admits everything is not replaced: its status says so, as that of
			// envoyproxy/ratelimit does.
			if slices.Contains(replaced, m.Limit.Name) && !m.Rate.Unlimited ||
				c.opts.NoInFlight && isInFlight(m.Variant) {
				continue
			}
			if err := c.add(i, m, &requests[i]); err != nil {
				return err
			}
		}
		from, c.ends[i] = end, len(c.statuses)
	}
	if c.opts.Estimate && !slices.ContainsFunc(c.uses, holdsUnits) {
		c.opts.Hold, c.opts.Peek, c.estimated = nil, true, true
	}
	for i := range c.uses {
		if err := c.prepare(&c.uses[i]); err != nil {
			return err
		}
	}
	return nil
}

// replaced returns the names of the limits that do not apply beside others of the call.
func (c *call) replaced() (names []string) {
	for _, m := range c.matches {
		names = append(names, m.Limit.Replaces...)
	}
	return names
}

// add adds a match of a request to the uses.
func (c *call) add(request int, m rules.Match, r *Request) error {
	var limiter *ratelimit.Limiter
	if r.Override == nil {
		limiter = c.inForce.limiters[m.Number]
	} else {
		var err error
		if m, limiter, err = c.inForce.override(m, *r.Override); err != nil {
			return err
		}
	}
	at := c.index(request, m)
	if at < 0 {
		tooMany := len(c.uses) >= maxUses
		switch {
		case tooMany && !r.Descriptor.Spelled():
			return fmt.Errorf("%w demand: the requests have more than %d limits and keys",
				ratelimit.ErrInvalid, maxUses)
		case tooMany && (m.Limit.Shadow || len(c.uses) > maxUses):
			return nil
		}
		at = len(c.uses)
		c.uses = append(c.uses, use{
			request: request, named: r.Limit != "", limiter: limiter, variant: m.Variant,
			status: Status{Key: m.Key}, tooMany: tooMany})
	}
	u := &c.uses[at]
	if m.Rate.Less(u.variant.Rate) { // one history is decided under one rate
		u.variant, u.limiter = m.Variant, limiter
	}
	n := r.N
	if m.Limit.Algorithm == algorithms.InFlight && r.Limit == "" {
		n = min(n, 1) // it is one call, whatever it costs
	}
	u.n += min(n, math.MaxInt64-u.n)
	c.statuses = append(c.statuses, at)
	return nil
}

// index returns the index of the use of a match, or -1.
func (c *call) index(request int, m rules.Match) int {
	for i := range c.uses {
		u := &c.uses[i]
		if u.variant.Limit == m.Limit && u.status.Key == m.Key &&
			(!c.opts.Each || u.request == request) {
			return i
		}
	}
	return -1
}
