package decision

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/driver"
)

// decide decides the uses of p, together or those of each request alone.
func (p *plan) decide(ctx context.Context) (id string, err error) {
	if !p.opts.Each {
		return p.decideGroup(ctx, p.uses)
	}
	from := 0
	for i := range p.uses {
		if last := i+1 == len(p.uses); last || p.uses[i].request != p.uses[i+1].request {
			if _, err := p.decideGroup(ctx, p.uses[from:i+1]); err != nil {
				return "", err
			}
			from = i + 1
		}
	}
	return "", nil
}

func (p *plan) decideGroup(ctx context.Context, uses []use) (id string, err error) {
	ctx = p.observed(ctx, uses)
	for i := range uses {
		if uses[i].role == recorded {
			if err := uses[i].record(ctx); err != nil {
				return "", err
			}
		}
	}
	never := refused(uses)
	if never {
		p.observeNever(ctx, uses)
	}
	if never && !p.opts.Peek {
		return "", nil
	}
	if hasQuota(uses) && !p.opts.Peek {
		id, err = p.enforceQuotas(ctx, uses)
	} else {
		id, err = p.enforce(ctx, uses)
	}
	switch {
	case err != nil && never:
		return "", nil // the refusal stands whatever the store says
	case err != nil, refused(uses) && !p.opts.Peek:
		return "", err
	}
	for i := range uses {
		if u := &uses[i]; u.role == tried { // its observer gets the error
			if p.opts.Peek {
				_ = u.peek(ctx)
			} else {
				_ = u.take(ctx)
			}
		}
	}
	return id, nil
}

// setResult makes res the result of u.
func (u *use) setResult(res ratelimit.Result) {
	if u.beyond {
		res.Limit.Max--
		res.Remaining = max(0, res.Remaining-1)
	}
	u.status.Result, u.status.Allowed, u.status.Asked = res, res.Allowed, true
}

// take takes the units of u alone.
func (u *use) take(ctx context.Context) error {
	res, err := u.limiter.AllowN(ctx, u.status.Key, u.n)
	if err == nil {
		u.setResult(res)
	}
	return err
}

// peek asks whether the units of u fit, and takes none.
func (u *use) peek(ctx context.Context) error {
	results, err := ratelimit.PeekAll(ctx, ratelimit.Claim{
		Limiter: u.limiter, Key: u.status.Key, N: u.n})
	if err == nil {
		u.setResult(results[0])
	}
	return err
}

// record takes the units of u, or records them if they do not fit. Taking them first says whether
// they fitted, which the result of a force does not if it leaves no unit free.
func (u *use) record(ctx context.Context) error {
	if u.used {
		ctx = withPurpose(ctx, toCharge) // it is no refusal
	}
	if u.n <= u.limiter.Max() {
		if err := u.take(ctx); err != nil || u.status.Allowed {
			return err
		}
	}
	wait := u.status.Result.RetryAfter
	res, err := u.limiter.Force(ctx, u.status.Key, min(u.n, driver.MaxUnits))
	if err != nil {
		return err
	}
	res.Allowed, res.RetryAfter = false, wait
	u.setResult(res)
	u.status.Never = u.n > u.limiter.Max()
	return nil
}

// claim makes a claim of each enforced use.
func (p *plan) claim(uses []use) {
	p.claims, p.claimed = p.claims[:0], p.claimed[:0]
	for i := range uses {
		if u := &uses[i]; u.role == enforced && !u.out {
			p.claims = append(p.claims,
				ratelimit.Claim{Limiter: u.limiter, Key: u.status.Key, N: u.n})
			p.claimed = append(p.claimed, u)
		}
	}
}

// enforce takes, holds or peeks at the units of the enforced uses, all or none.
func (p *plan) enforce(ctx context.Context, uses []use) (id string, err error) {
	p.claim(uses)
	switch {
	case len(p.claims) == 0:
		return "", nil
	case p.opts.Hold != nil:
		return p.hold(ctx)
	case len(p.claims) == 1 && !p.opts.Peek:
		return "", p.claimed[0].take(ctx)
	}
	decide := ratelimit.AllowAll
	if p.opts.Peek {
		decide = ratelimit.PeekAll
	}
	results, err := decide(ctx, p.claims...)
	if apart(err) && !p.opts.Together {
		p.apart = true
		return "", p.oneByOne(ctx)
	}
	p.setResults(results)
	return "", err
}

func (p *plan) setResults(results []ratelimit.Result) {
	for i, res := range results {
		p.claimed[i].setResult(res)
	}
}

// oneByOne takes the units of each claim alone, until one is refused. It peeks at all but the first
// before, so that a limit that is used up refuses before anything is taken. The narrowest limits
// come first: they mostly refuse where calls meet between peek and take, and a wide limit is not
// charged then.
func (p *plan) oneByOne(ctx context.Context) error {
	p.decider.counters.oneByOne.Add(1)
	if !p.opts.Peek {
		if done, err := p.quotasOneByOne(ctx); done || err != nil {
			return err
		}
	}
	peeked, ahead := p.claimed, ctx
	if !p.opts.Peek {
		slices.SortStableFunc(p.claimed, func(a, b *use) int {
			return cmp.Compare(a.limiter.Max(), b.limiter.Max())
		})
		peeked, ahead = p.claimed[1:], withPurpose(ctx, toTry)
	}
	for _, u := range peeked {
		if err := u.peek(ahead); err != nil || !u.status.Allowed && !p.opts.Peek {
			return err
		}
	}
	if p.opts.Peek {
		return nil
	}
	slices.SortStableFunc(peeked, func(a, b *use) int {
		return cmp.Compare(a.status.Result.Remaining, b.status.Result.Remaining)
	})
	for _, u := range p.claimed {
		if err := u.take(ctx); err != nil || !u.status.Allowed {
			return err
		}
	}
	return nil
}

// hold holds the units of all claims, or none. The id is empty if they are refused or if nothing is
// held: they have no units under limits with holds, or the policy has admitted them.
func (p *plan) hold(ctx context.Context) (id string, err error) {
	held := false
	for i, u := range p.claimed {
		p.claims[i].HoldTimeout = p.holdOf(u)
		held = held || u.n > 0 && isHolder(u.variant)
	}
	r, err := p.reserve(ctx)
	if err != nil {
		return "", err
	}
	p.setResults(r.Results())
	switch {
	case !r.Allowed() || !held:
		return "", nil
	case r.Result().Source == ratelimit.SourceOpen:
		_ = r.Cancel(ctx) // what the store may hold all the same
		return "", nil
	}
	if id, err = r.Token(); err != nil {
		_ = r.Cancel(ctx)
	}
	return id, err
}

// holdOf returns how long to hold the units of u.
func (p *plan) holdOf(u *use) time.Duration {
	hold := *p.opts.Hold
	holder, ok := u.variant.Algorithm.(driver.Holder)
	if !ok || !p.opts.Estimate || hold == 0 {
		return hold
	}
	return min(max(hold, holder.HoldTimeout()/16), holder.HoldTimeout()*16)
}

// reserve reserves the claims. It waits as long as the options say, and for one more call of the
// store.
func (p *plan) reserve(ctx context.Context) (*ratelimit.Reservation, error) {
	if p.opts.Wait > 0 {
		r, err := p.acquire(ctx, p.opts.Wait)
		if r != nil || err != nil {
			return r, err
		}
	}
	return ratelimit.ReserveAll(ctx, p.claims...)
}

// acquire waits for the claims. It returns nil if they did not fit within the time, and the last
// refusal if they cannot fit within it, or if the client has left: another call could hold units
// that nobody settles.
func (p *plan) acquire(
	ctx context.Context, longest time.Duration,
) (*ratelimit.Reservation, error) {
	waiting, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	client := p.opts.Client
	if client == nil {
		client = ctx
	}
	defer context.AfterFunc(client, cancel)()
	if p.opts.Stop != nil {
		defer context.AfterFunc(p.opts.Stop, cancel)()
	}
	r, err := ratelimit.AcquireAll(waiting, p.claims...)
	switch {
	case err == nil, errors.Is(err, ratelimit.ErrOutcomeUnknown):
		return r, err
	case waiting.Err() == nil && r != nil && errors.Is(err, context.DeadlineExceeded) &&
		!errors.Is(err, ratelimit.ErrUnavailable): // it is refused for longer than the wait
		return r, nil
	case waiting.Err() == nil:
		return r, err
	case r != nil && client.Err() != nil:
		return r, nil
	}
	return nil, nil
}
