package daemon

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

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
	server   ratelimit.Store      // keeps the marks of settled reservations
}

// settledName is the name of the limit of the marks of settled reservations: one unit for each.
const settledName = "ratelimit:settled"

var errNames = errors.New("each limit of --limit, --in-flight and --block needs its own name; " +
	"without one, its window is its name")

// newBudgets returns the limits of the command line. The server is the store without local
// decisions.
func (c *serveCmd) newBudgets(store, server ratelimit.Store) (*budgets, error) {
	b := &budgets{byName: make(map[string]*budget), server: server}
	policy := c.OnFailure.policy()
	for _, l := range c.Limit {
		err := b.add(rate, algorithm.SlidingLog(named(l)), store, policy, ratelimit.New)
		if err != nil {
			return nil, err
		}
	}
	for _, l := range c.InFlight {
		err := b.add(inFlight, algorithm.SlidingLog(named(l)), store, policy, ratelimit.NewInFlight)
		if err != nil {
			return nil, err
		}
	}
	for _, f := range c.Block {
		if err := b.add(block, f.Block, store, policy, ratelimit.New); err != nil {
			return nil, err
		}
	}
	return b, nil
}

type newFunc func(ratelimit.Store, ...ratelimit.Algorithm) (*ratelimit.Limiter, error)

func (b *budgets) add(
	k kind, a ratelimit.Algorithm, store ratelimit.Store, policy ratelimit.Policy, create newFunc,
) error {
	name := a.Limit().Name
	if b.byName[name] != nil || name == settledName {
		return fmt.Errorf("%w limit: the name %q is taken: %w",
			ratelimit.ErrInvalid, name, errNames)
	}
	limiter, err := create(store, a)
	if err != nil {
		return err
	}
	b.byName[name] = &budget{limiter.WithPolicy(policy), a.Limit(), k, limiter}
	b.limiters = append(b.limiters, b.byName[name].Limiter)
	return nil
}

// observe sets the observer of all limits. Calls for the marks of settled reservations, blocks and
// unblocks are not observed.
func (b *budgets) observe(observe func(context.Context, ratelimit.Observation)) {
	b.limiters = nil
	for _, budget := range b.byName {
		budget.Limiter = budget.WithObserver(observe)
		b.limiters = append(b.limiters, budget.Limiter)
	}
}

// of returns the budget of a claim.
func (b *budgets) of(c ratelimit.Claim) *budget { return b.byName[c.Limiter.Limits()[0].Name] }

// mark returns a limiter that admits each key once within the longest window of claims, so for as
// long as their units count.
func (b *budgets) mark(claims []ratelimit.Claim) (*ratelimit.Limiter, error) {
	var longest time.Duration
	for _, c := range claims {
		longest = max(longest, b.of(c).limit.Window)
	}
	return ratelimit.New(b.server, algorithm.SlidingLog(
		ratelimit.Limit{Name: settledName, Max: 1, Window: longest}))
}

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
