package daemon

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
)

// kind says what the units of a limit are.
type kind uint8

const (
	rate     kind = iota // units that were used, of --limit
	inFlight             // calls in flight, of --in-flight
	block                // milliseconds for which a key is blocked, of --block
)

// String returns the flag that configures limits of the kind.
func (k kind) String() string { return [...]string{"--limit", "--in-flight", "--block"}[k] }

// A budget is a limit that requests name.
type budget struct {
	*ratelimit.Limiter
	limit   ratelimit.Limit
	kind    kind
	timeout time.Duration // of its holds; 0 for a block, which has none
	policy  ratelimit.Policy
	// strict has no policy and no observer.
	strict *ratelimit.Limiter
	// settles settles what is held under any rate of a limit of a file; mostly it is the Limiter.
	settles *ratelimit.Limiter
}

// budgets are the limits of the daemon, all on one store.
type budgets struct {
	byName   map[string]*budget
	rates    []*budget            // of --limit, in the order of the flags
	all      *ratelimit.Limiter   // of rates, or of the key [key] of a file; nil without any
	limiters []*ratelimit.Limiter // of byName
	settling []*ratelimit.Limiter // which settle what is held under byName
	ofFile   bool                 // the limits are those of --config
}

var errNames = errors.New("each limit of --limit, --in-flight and --block needs its own name, as " +
	"in --limit NAME=MAX/WINDOW; without one, its window is its name")

// newBudgets returns the limits of the command line, whose decisions are observed. observe may be
// nil.
func (c *serveCmd) newBudgets(store ratelimit.Store, observe observeFunc) (*budgets, error) {
	b := &budgets{byName: make(map[string]*budget)}
	add := func(k kind, a ratelimit.Algorithm) error {
		return b.add(k, a, a, store, c.OnFailure.policy(), observe)
	}
	var algorithms []ratelimit.Algorithm
	for _, l := range c.Limit {
		a := algorithm.Budget(algorithm.SlidingLog(named(l)))
		if err := add(rate, a); err != nil {
			return nil, err
		}
		algorithms = append(algorithms, a)
		b.rates = append(b.rates, b.byName[a.Limit().Name])
	}
	for _, l := range c.InFlight {
		a := algorithm.InFlight(named(l).Name, l.Max).WithTimeout(l.Window)
		if err := add(inFlight, a); err != nil {
			return nil, err
		}
	}
	for _, f := range c.Block {
		if err := add(block, f.Block); err != nil {
			return nil, err
		}
	}
	all, err := ratelimit.New(store, algorithms...)
	if err != nil {
		return nil, err
	}
	b.all = all.WithObserver(observe)
	return b, nil
}

func (b *budgets) add(
	k kind, a, settles ratelimit.Algorithm, store ratelimit.Store, policy ratelimit.Policy,
	observe observeFunc,
) error {
	strict, err := ratelimit.New(store, a)
	if err != nil {
		return err
	}
	limiter := strict.WithPolicy(policy).WithObserver(observe)
	added := &budget{
		Limiter: limiter, limit: a.Limit(), kind: k, policy: policy, strict: strict,
		settles: limiter}
	if settles != a {
		l, err := ratelimit.New(store, settles)
		if err != nil {
			return err
		}
		added.settles = l.WithPolicy(policy).WithObserver(observe)
	}
	if h, ok := a.(driver.Holder); ok {
		added.timeout = h.Holds()
	}
	return b.put(added)
}

func (b *budgets) put(added *budget) error {
	name := added.limit.Name
	if b.byName[name] != nil {
		return fmt.Errorf("%w limit: the name %q is taken: %w",
			ratelimit.ErrInvalid, name, errNames)
	}
	b.byName[name], b.limiters = added, append(b.limiters, added.Limiter)
	b.settling = append(b.settling, added.settles)
	return nil
}

// has reports whether b has a limit that is made of the same.
func (b *budgets) has(a, settles ratelimit.Algorithm, policy ratelimit.Policy) bool {
	has := b.byName[a.Limit().Name]
	return has != nil && has.policy == policy && has.Algorithms()[0] == a &&
		has.settles.Algorithms()[0] == settles
}

// of returns the budget of a claim.
func (b *budgets) of(c ratelimit.Claim) *budget { return b.byName[c.Limiter.Limits()[0].Name] }

// blockFlag is the name of a block and the longest time for which it can last, as in blocked=24h.
type blockFlag struct{ algorithm.Block }

// UnmarshalText is called by kong.
func (f *blockFlag) UnmarshalText(text []byte) error {
	form := fmt.Errorf("%q is not of the form NAME=LONGEST, such as blocked=24h", text)
	at := strings.LastIndexByte(string(text), '=') // a name may contain one
	if at < 0 {
		return form
	}
	// The form is that of a limit without its units.
	limit, err := ratelimit.ParseLimit(string(text[:at]) + "=1/" + string(text[at+1:]))
	if err != nil {
		return fmt.Errorf("%w: %w", form, err)
	}
	b := algorithm.Blocking(limit.Name, limit.Window)
	if err := b.Validate(); err != nil {
		return err
	}
	f.Block = b
	return nil
}

// String returns the flag in the form that UnmarshalText reads.
func (f blockFlag) String() string { return f.Limit().Name + "=" + f.Limit().Window.String() }
