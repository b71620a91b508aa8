package decision

import (
	"sync"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
)

// A plan is what one call of Decide asks of the store.
type plan struct {
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
	apart     bool // the store could not decide the claims together
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
	used    bool               // units of a request are used already
	out     bool               // of limits with Quota: has no room, and is not charged
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

var plans = sync.Pool{New: func() any { return new(plan) }}

// release ends the use of p, which must not keep keys of users.
func (p *plan) release() {
	clear(p.matches)
	clear(p.uses)
	clear(p.claims)
	clear(p.claimed)
	*p = plan{
		matches: p.matches[:0], uses: p.uses[:0], ends: p.ends[:0], statuses: p.statuses[:0],
		claims: p.claims[:0], claimed: p.claimed[:0],
	}
	plans.Put(p)
}
