package daemon

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
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
	limit ratelimit.Limit
	kind  kind
	// strict has no policy and no observer.
	strict *ratelimit.Limiter
}

// budgets are the limits that requests name, all on one store.
type budgets struct {
	byName   map[string]*budget
	limiters []*ratelimit.Limiter // of byName
}

var errNames = errors.New("each limit of --limit, --in-flight and --block needs its own name; " +
	"without one, its window is its name")

// budgetOf returns the algorithm of a limit of --limit.
func budgetOf(l ratelimit.Limit) ratelimit.Algorithm {
	return algorithm.Budget(algorithm.SlidingLog(named(l)))
}

// newBudgets returns the limits of the command line.
func (c *serveCmd) newBudgets(store ratelimit.Store) (*budgets, error) {
	b := &budgets{byName: make(map[string]*budget)}
	policy := c.OnFailure.policy()
	for _, l := range c.Limit {
		if err := b.add(rate, budgetOf(l), store, policy); err != nil {
			return nil, err
		}
	}
	for _, l := range c.InFlight {
		a := algorithm.InFlight(named(l).Name, l.Max).WithTimeout(l.Window)
		if err := b.add(inFlight, a, store, policy); err != nil {
			return nil, err
		}
	}
	for _, f := range c.Block {
		if err := b.add(block, f.Block, store, policy); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func (b *budgets) add(
	k kind, a ratelimit.Algorithm, store ratelimit.Store, policy ratelimit.Policy,
) error {
	name := a.Limit().Name
	if b.byName[name] != nil {
		return fmt.Errorf("%w limit: the name %q is taken: %w",
			ratelimit.ErrInvalid, name, errNames)
	}
	limiter, err := ratelimit.New(store, a)
	if err != nil {
		return err
	}
	b.byName[name] = &budget{limiter.WithPolicy(policy), a.Limit(), k, limiter}
	b.limiters = append(b.limiters, b.byName[name].Limiter)
	return nil
}

// observe sets the observer of all limits. Blocks and unblocks are not observed.
func (b *budgets) observe(observe func(context.Context, ratelimit.Observation)) {
	b.limiters = nil
	for _, budget := range b.byName {
		budget.Limiter = budget.WithObserver(observe)
		b.limiters = append(b.limiters, budget.Limiter)
	}
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
