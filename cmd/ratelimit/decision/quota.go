package decision

import (
	"context"
	"slices"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/driver"
)

// Limits with Quota, of envoyproxy/ratelimit's quota_mode, refuse a call only if all of them do. A
// call is decided so:
//
//  1. The store is asked for the units of all limits together.
//  2. If only limits with Quota refuse, it is asked again without those: they are not charged.
//  3. If none is left, those that refused did so at several instants, and another may have got
//     room since. The store is asked for all of them again, as in 1.
//
// So a refusal had an instant at which no limit with Quota had room, or one at which another limit
// had none. Only after maxQuotaRounds, for which the limits have to change between the calls each
// time, a call is refused because each was full when it was asked last. Limits on several servers
// of a cluster, which no call asks at one instant, are asked one by one.

// maxQuotaRounds bounds how often a call asks for all limits.
const maxQuotaRounds = 8

// isQuota reports whether u refuses only together with others. A rate without a bound is not among
// them, as for envoyproxy/ratelimit.
func (u *use) isQuota() bool { return u.variant.Limit.Quota && !u.variant.Rate.Unlimited }

// refused reports whether uses refuse the call.
func refused(uses []use) bool {
	quotas, room := false, false
	for i := range uses {
		switch u := &uses[i]; {
		case u.isQuota():
			quotas, room = true, room || !u.refuses()
		case u.refuses():
			return true
		}
	}
	return quotas && !room
}

func hasQuota(uses []use) bool {
	for i := range uses {
		if uses[i].role == enforced && uses[i].isQuota() {
			return true
		}
	}
	return false
}

// enforceQuotas is enforce for uses of which some are of limits with Quota.
func (p *plan) enforceQuotas(ctx context.Context, uses []use) (id string, err error) {
	p.opts.Wait = 0 // a wait would be for all limits with Quota, of which one is enough
	began, choosing := time.Now(), withPurpose(ctx, toChoose)
	for round := 1; ; {
		together := !slices.ContainsFunc(uses, func(u use) bool { return u.out })
		id, err = p.enforce(choosing, uses)
		if err != nil || p.apart || !p.leaveOut() {
			break
		}
		if slices.ContainsFunc(uses, func(u use) bool { return u.hasRoom() }) {
			continue
		}
		if together || round == maxQuotaRounds {
			break
		}
		round++
		for i := range uses {
			uses[i].out = false
		}
	}
	if err == nil {
		p.observeRefused(ctx, uses, time.Since(began))
	}
	return id, err
}

// hasRoom reports whether u is of a limit with Quota that has not refused, or that only tries.
func (u *use) hasRoom() bool { return u.isQuota() && !u.out && !u.refuses() }

// leaveOut leaves out the claims of limits with Quota that refused. It is false if the decision
// stands: none refused, or another limit did.
func (p *plan) leaveOut() (again bool) {
	for _, u := range p.claimed {
		if u.refuses() && !u.isQuota() {
			return false
		}
	}
	for _, u := range p.claimed {
		if u.refuses() {
			u.out, again = true, true
		}
	}
	return again
}

// observeRefused observes the refusals that enforceQuotas was left with. Those of a call that is
// admitted are peeks: nothing was refused to it.
func (p *plan) observeRefused(ctx context.Context, uses []use, elapsed time.Duration) {
	observe := p.decider.observe
	if observe == nil {
		return
	}
	all, op := refused(uses), driver.OpTake
	switch {
	case !all:
		op = driver.OpPeek
	case p.opts.Hold != nil:
		op = driver.OpHold
	}
	for i := range uses {
		u := &uses[i]
		if u.role != enforced || !u.status.Asked || u.status.Allowed && !all ||
			p.apart && !u.isQuota() { // which oneByOne observes
			continue
		}
		results := [1]ratelimit.Result{u.status.Result}
		observe(ctx, ratelimit.Observation{Key: u.status.Key, Op: op, N: u.n,
			Limits: u.limiter.Limits(), Results: results[:], Elapsed: elapsed})
	}
}

// quotasOneByOne takes the units of the claims with Quota alone, and leaves the others to oneByOne,
// if they have room. It is done if one of them has not, or no claim with Quota has.
func (p *plan) quotasOneByOne(ctx context.Context) (done bool, err error) {
	var quotas, others []*use
	for _, u := range p.claimed {
		if u.isQuota() {
			quotas = append(quotas, u)
		} else {
			others = append(others, u)
		}
	}
	if len(quotas) == 0 {
		return false, nil
	}
	for _, u := range others {
		if err := u.peek(withPurpose(ctx, toTry)); err != nil || !u.status.Allowed {
			return true, err
		}
	}
	done = true
	for _, u := range quotas {
		if err := u.take(ctx); err != nil {
			return true, err
		}
		done = done && !u.status.Allowed
	}
	p.claimed = others
	return done || len(others) == 0, nil
}
