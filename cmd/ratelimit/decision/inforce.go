package decision

import (
	"cmp"
	"fmt"
	"sync"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
	"github.com/truewindow/ratelimit/driver"
)

// maxOverrides is how many limiters of other rates a set keeps. Clients choose these rates, so
// there may be any number.
const maxOverrides = 1024

// inForce is a set of limits with its limiters. Only the overrides change.
type inForce struct {
	set      *rules.Set
	decider  *Decider
	limiters []*ratelimit.Limiter // by the number of the variant; nil for one without an algorithm
	holders  []*ratelimit.Limiter // one for each limit with holds
	byMaking map[making]*ratelimit.Limiter
	counts   map[*rules.Limit]*limitCounters

	mu        sync.Mutex
	overrides map[override]overrideLimiter
}

// A making is what a limiter is made of. A set keeps the limiters of the set before it that are
// made of the same, so that calls which wait for a key are in one queue.
type making struct {
	algorithm driver.Algorithm
	onFailure string
	shadow    bool
}

// An override is a limit with a rate that is not in the set.
type override struct {
	limit *rules.Limit
	rate  rules.Rate
}

type overrideLimiter struct {
	variant *rules.Variant
	limiter *ratelimit.Limiter // nil if the rate admits everything or nothing
}

// build returns a set with the limiters of its variants.
func (d *Decider) build(set *rules.Set) (*inForce, error) {
	if set == nil {
		return nil, fmt.Errorf("%w options: no set of limits", ratelimit.ErrInvalid)
	}
	variants := set.Variants()
	f := &inForce{
		set: set, decider: d, limiters: make([]*ratelimit.Limiter, len(variants)),
		byMaking:  make(map[making]*ratelimit.Limiter, len(variants)),
		counts:    make(map[*rules.Limit]*limitCounters),
		overrides: make(map[override]overrideLimiter),
	}
	before := d.current.Load()
	if before == nil {
		before = new(inForce)
	}
	held := make(map[*rules.Limit]bool)
	for _, v := range variants {
		if f.counts[v.Limit] == nil {
			f.counts[v.Limit] = d.counters.of(v.Limit.Name)
		}
		made := func(a driver.Algorithm) (*ratelimit.Limiter, error) {
			of := making{a, v.Limit.OnFailure, v.Limit.Shadow}
			l := cmp.Or(f.byMaking[of], before.byMaking[of])
			if l == nil {
				var err error
				if l, err = d.limiter(v, a); err != nil {
					return nil, fmt.Errorf("limit %q: %w", v.Limit.Name, err)
				}
			}
			f.byMaking[of] = l
			return l, nil
		}
		var err error
		if f.limiters[v.Number], err = made(v.Algorithm); err != nil {
			return nil, err
		}
		if _, holds := v.Algorithm.(driver.Holder); holds && !held[v.Limit] {
			held[v.Limit] = true
			settles, err := made(v.Settles)
			if err != nil {
				return nil, err
			}
			f.holders = append(f.holders, settles)
		}
	}
	return f, nil
}

// limiter returns the limiter of a variant with an algorithm, or nil without one.
func (d *Decider) limiter(
	v *rules.Variant, a driver.Algorithm,
) (*ratelimit.Limiter, error) {
	if a == nil {
		return nil, nil
	}
	policy, observe := d.policy, d.observe
	switch v.Limit.OnFailure {
	case "closed":
		policy = ratelimit.FailClosed
	case "open":
		policy = ratelimit.FailOpen
	}
	if v.Limit.Shadow {
		observe = d.observeShadow
	}
	l, err := ratelimit.New(d.store, a)
	if err != nil {
		return nil, err
	}
	return l.WithPolicy(policy).WithObserver(observe), nil
}

// override returns m with another rate, and its limiter.
func (f *inForce) override(
	m rules.Match, rate rules.Rate,
) (rules.Match, *ratelimit.Limiter, error) {
	name := override{m.Limit, rate}
	f.mu.Lock()
	found, ok := f.overrides[name]
	f.mu.Unlock()
	if ok {
		m.Variant = found.variant
		return m, found.limiter, nil
	}
	m, err := f.set.Override(m, rate)
	if err != nil {
		return m, nil, fmt.Errorf("limit %q: %w", name.limit.Name, err)
	}
	l, err := f.decider.limiter(m.Variant, m.Algorithm)
	if err != nil {
		return m, nil, fmt.Errorf("limit %q: %w", name.limit.Name, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.overrides) >= maxOverrides {
		for other := range f.overrides { // any of them: it is made again when it is needed
			delete(f.overrides, other)
			break
		}
	}
	f.overrides[name] = overrideLimiter{m.Variant, l}
	return m, l, nil
}

func isBlock(v *rules.Variant) bool {
	_, ok := v.Algorithm.(algorithm.Block)
	return ok
}

func isHolder(v *rules.Variant) bool {
	_, ok := v.Algorithm.(driver.Holder)
	return ok
}

func isInFlight(v *rules.Variant) bool {
	h, ok := v.Algorithm.(driver.Holder)
	return ok && h.InFlight()
}
