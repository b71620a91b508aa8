package decision

import (
	"context"
	"errors"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/driver"
)

// decide decides the uses of c, together or those of each request alone.
func (c *call) decide(ctx context.Context) (id string, err error) {
	if !c.opts.Each {
		return c.decideAll(ctx, c.uses)
	}
	from := 0
	for i := range c.uses {
		if last := i+1 == len(c.uses); last || c.uses[i].request != c.uses[i+1].request {
			if _, err := c.decideAll(ctx, c.uses[from:i+1]); err != nil {
				return "", err
			}
			from = i + 1
		}
	}
	return "", nil
}

func (c *call) decideAll(ctx context.Context, uses []use) (id string, err error) {
	ctx = c.observed(ctx, uses)
	for i := range uses {
		if uses[i].role == recorded {
			if err := uses[i].record(ctx); err != nil {
				return "", err
			}
		}
	}
	never := refused(uses)
	if never {
		c.observeNever(ctx, uses)
	}
	if never && !c.opts.Peek {
		return "", nil
	}
	id, err = c.enforce(ctx, uses)
	switch {
	case err != nil && never:
		return "", nil // the refusal stands whatever the store says
	case err != nil, refused(uses) && !c.opts.Peek:
		return "", err
	}
	for i := range uses {
		if u := &uses[i]; u.role == tried { // its observer gets the error
			if c.opts.Peek {
				_ = u.peek(ctx)
			} else {
				_ = u.take(ctx)
			}
		}
	}
	return id, nil
}

func refused(uses []use) bool {
	for i := range uses {
		if uses[i].refuses() {
			return true
		}
	}
	return false
}

// answer makes res the result of u.
func (u *use) answer(res ratelimit.Result) {
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
		u.answer(res)
	}
	return err
}

// peek asks whether the units of u fit, and takes none.
func (u *use) peek(ctx context.Context) error {
	results, err := ratelimit.PeekAll(ctx, ratelimit.Claim{
		Limiter: u.limiter, Key: u.status.Key, N: u.n})
	if err == nil {
		u.answer(results[0])
	}
	return err
}

// record takes the units of u, or records them if they do not fit. Taking them first says whether
// they fitted, which the result of a force does not if it leaves no unit free.
func (u *use) record(ctx context.Context) error {
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
	u.answer(res)
	u.status.Never = u.n > u.limiter.Max()
	return nil
}

// claim makes a claim of each enforced use.
func (c *call) claim(uses []use) {
	c.claims, c.claimed = c.claims[:0], c.claimed[:0]
	for i := range uses {
		if u := &uses[i]; u.role == enforced {
			c.claims = append(c.claims,
				ratelimit.Claim{Limiter: u.limiter, Key: u.status.Key, N: u.n})
			c.claimed = append(c.claimed, u)
		}
	}
}

// enforce takes, holds or peeks at the units of the enforced uses, all or none.
func (c *call) enforce(ctx context.Context, uses []use) (id string, err error) {
	c.claim(uses)
	switch {
	case len(c.claims) == 0:
		return "", nil
	case c.opts.Hold != nil:
		return c.hold(ctx)
	case len(c.claims) == 1 && !c.opts.Peek:
		return "", c.claimed[0].take(ctx)
	}
	decide := ratelimit.AllowAll
	if c.opts.Peek {
		decide = ratelimit.PeekAll
	}
	results, err := decide(ctx, c.claims...)
	if apart(err) && !c.opts.Together {
		return "", c.oneByOne(ctx)
	}
	c.answer(results)
	return "", err
}

func (c *call) answer(results []ratelimit.Result) {
	for i, res := range results {
		c.claimed[i].answer(res)
	}
}

// oneByOne takes the units of each claim alone, in order, until one is refused. A limit that is
// used up already refuses before that.
func (c *call) oneByOne(ctx context.Context) error {
	c.decider.counters.oneByOne.Add(1)
	peeked := c.claimed[1:]
	if c.opts.Peek {
		peeked = c.claimed
	}
	ahead := ctx
	if !c.opts.Peek {
		ahead = withPurpose(ctx, toTry)
	}
	for _, u := range peeked {
		if err := u.peek(ahead); err != nil || !u.status.Allowed && !c.opts.Peek {
			return err
		}
	}
	if c.opts.Peek {
		return nil
	}
	for _, u := range c.claimed {
		if err := u.take(ctx); err != nil || !u.status.Allowed {
			return err
		}
	}
	return nil
}

// hold holds the units of all claims, or none. The id is empty if they are refused or if nothing is
// held: they have no units under limits with holds, or the policy has admitted them.
func (c *call) hold(ctx context.Context) (id string, err error) {
	held := false
	for i, u := range c.claimed {
		c.claims[i].HoldTimeout = c.holdOf(u)
		held = held || u.n > 0 && isHolder(u.variant)
	}
	r, err := c.reserve(ctx)
	if err != nil {
		return "", err
	}
	c.answer(r.Results())
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
func (c *call) holdOf(u *use) time.Duration {
	hold := *c.opts.Hold
	holder, ok := u.variant.Algorithm.(driver.Holder)
	if !ok || !c.opts.Estimate || hold == 0 {
		return hold
	}
	return min(max(hold, holder.HoldTimeout()/16), holder.HoldTimeout()*16)
}

// reserve reserves the claims. It waits as long as the options say, and for one more call of the
// store.
func (c *call) reserve(ctx context.Context) (*ratelimit.Reservation, error) {
	if c.opts.Wait > 0 {
		r, err := c.acquire(ctx, c.opts.Wait)
		if r != nil || err != nil {
			return r, err
		}
	}
	return ratelimit.ReserveAll(ctx, c.claims...)
}

// acquire waits for the claims. It returns nil if they did not fit within the time, and the last
// refusal if the client has left: another call could hold units that nobody settles.
func (c *call) acquire(
	ctx context.Context, longest time.Duration,
) (*ratelimit.Reservation, error) {
	waiting, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	client := c.opts.Client
	if client == nil {
		client = ctx
	}
	defer context.AfterFunc(client, cancel)()
	if c.opts.Stop != nil {
		defer context.AfterFunc(c.opts.Stop, cancel)()
	}
	r, err := ratelimit.AcquireAll(waiting, c.claims...)
	switch {
	case err == nil, errors.Is(err, ratelimit.ErrOutcomeUnknown), waiting.Err() == nil:
		return r, err
	case r != nil && client.Err() != nil:
		return r, nil
	}
	return nil, nil
}
