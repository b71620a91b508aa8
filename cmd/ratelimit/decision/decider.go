package decision

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/cmd/ratelimit/rules"
	"github.com/truewindow/ratelimit/driver"
)

// ErrNoSet means that no set of limits is in force yet. It wraps [ratelimit.ErrUnavailable], but
// says nothing of the store.
var ErrNoSet error = noSet{}

type noSet struct{}

func (noSet) Error() string { return "no limits are loaded yet" }

func (noSet) Unwrap() error { return ratelimit.ErrUnavailable }

// A Decider decides requests on one store, under the set of limits that is in force. It is safe for
// concurrent use.
type Decider struct {
	store         ratelimit.Store
	policy        ratelimit.Policy
	observe       observeFunc
	observeShadow observeFunc
	warn          func(ratelimit.Limit)
	log           func(ctx context.Context, domain string, d Decision) // or nil

	using    sync.Mutex // held by Use
	current  atomic.Pointer[inForce]
	counters counters
}

type observeFunc = func(context.Context, ratelimit.Observation)

// An Option changes what [New] makes.
type Option func(*Decider)

// WithPolicy sets the policy of limits without an OnFailure. The default is
// [ratelimit.FailClosed].
func WithPolicy(p ratelimit.Policy) Option { return func(d *Decider) { d.policy = p } }

// WithObserver calls observe for each decision under a limit that is enforced; see
// [ratelimit.Limiter.WithObserver]. It can be given several times.
func WithObserver(observe func(context.Context, ratelimit.Observation)) Option {
	return func(d *Decider) { d.observe = both(d.observe, observe) }
}

// WithShadowObserver is [WithObserver] for limits with Shadow, which it does not include.
func WithShadowObserver(observe func(context.Context, ratelimit.Observation)) Option {
	return func(d *Decider) { d.observeShadow = both(d.observeShadow, observe) }
}

// WithWarnings calls warn for each decision with a warning, under the limit that warns.
func WithWarnings(warn func(ratelimit.Limit)) Option { return func(d *Decider) { d.warn = warn } }

// WithLog calls log for each decision that takes or holds units, with the domain of its first
// request.
func WithLog(log func(ctx context.Context, domain string, d Decision)) Option {
	return func(d *Decider) { d.log = log }
}

func both(a, b observeFunc) observeFunc {
	if a == nil || b == nil {
		if a == nil {
			return b
		}
		return a
	}
	return func(ctx context.Context, o ratelimit.Observation) {
		a(ctx, o)
		b(ctx, o)
	}
}

// New returns a Decider without a set of limits: call [Decider.Use] before Decide.
func New(store ratelimit.Store, options ...Option) *Decider {
	d := &Decider{store: store, warn: func(ratelimit.Limit) {}}
	for _, o := range options {
		o(d)
	}
	d.observe, d.observeShadow = asDecided(d.observe), asDecided(d.observeShadow)
	return d
}

// Use puts a set of limits in force. A call of Decide uses one set from begin to end. What is
// recorded under a limit stays, since its name identifies it. An error wraps [ratelimit.ErrInvalid]
// and changes nothing.
func (d *Decider) Use(set *rules.Set) error {
	d.using.Lock()
	defer d.using.Unlock()
	f, err := d.build(set)
	if err != nil {
		return err
	}
	d.counters.keep(f.counts)
	d.current.Store(f)
	return nil
}

// Set returns the set that is in force, or nil.
func (d *Decider) Set() *rules.Set {
	if f := d.current.Load(); f != nil {
		return f.set
	}
	return nil
}

// Resume returns what a [Decision].ID holds, to be settled or renewed; see [ratelimit.Resume]. The
// error wraps [ratelimit.ErrUnknownLimit] if a limit is not in force any more: what is held under
// it times out.
//
// An ID does not say at which rate its units were held. To extend it, pass requests that name
// limits: these have the rates of the requests then, and of several on one limit the lowest. A
// missing entry is an [ErrMissingEntry], and a rate of no units a [driver.ErrExceedsLimit], both in
// a [RequestError].
func (d *Decider) Resume(id string, extend ...Request) (*ratelimit.Reservation, error) {
	f := d.current.Load()
	if f == nil {
		return nil, ErrNoSet
	}
	var rates []rules.Match
	for i, r := range extend {
		m, missing, ok := f.set.Named(r.Limit, r.Key, r.Descriptor)
		switch {
		case missing != "":
			return nil, &RequestError{Request: i, Limit: ratelimit.Limit{Name: r.Limit},
				Entry: missing, Err: ErrMissingEntry}
		case ok && m.Algorithm == nil && !m.Rate.Unlimited:
			return nil, &RequestError{Request: i, Limit: ratelimit.Limit{Name: r.Limit},
				Err: driver.ErrExceedsLimit}
		case ok && m.Algorithm != nil:
			rates = append(rates, m)
		}
	}
	slices.SortFunc(rates, func(a, b rules.Match) int {
		if a.Rate.Less(b.Rate) {
			return -1
		}
		return 1
	})
	var limiters []*ratelimit.Limiter
	for _, m := range rates {
		limiters = append(limiters, f.limiters[m.Number])
	}
	return ratelimit.Resume(id, append(limiters, f.holders...)...)
}

// Decide decides the requests of a call, all or none. Limits with Always are charged first,
// whatever the others say. They refuse the call if the units did not fit, and nothing else is
// charged then. With an N of 0, and for units that are held, they are as other limits. Next the
// enforced limits are decided together. If none refuses, each limit with Shadow is decided alone,
// in a call of the store of its own; it is charged and never held.
//
// On a Redis or Valkey Cluster the keys may be on several servers. Then the enforced limits are
// decided one by one: if one of them refuses, those before it may have been charged. To
// make that rare, all but the first are peeked at before. Nothing gives such units back. With a
// Hold, or Together, the error is [errors.ErrUnsupported] instead, and nothing is held or taken.
//
// Errors wrap [ratelimit.ErrInvalid] if a request can never be decided, and are otherwise those of
// [ratelimit.AllowAll]. After an error, limits with Always and requests that are decided alone may
// have been charged. An error under a limit with Shadow is left to its observer.
func (d *Decider) Decide(
	ctx context.Context, requests []Request, opts Options,
) (Decision, error) {
	f := d.current.Load()
	if f == nil {
		return Decision{}, ErrNoSet
	}
	if err := check(requests, &opts); err != nil {
		return Decision{}, err
	}
	c := plans.Get().(*plan)
	defer c.release()
	c.decider, c.inForce, c.opts = d, f, opts
	if err := c.find(requests); err != nil {
		return Decision{}, err
	}
	id, err := c.decide(ctx)
	if err != nil {
		return Decision{}, err
	}
	decided := c.decision(id)
	if d.log != nil && !opts.Peek && !opts.Force {
		d.log(ctx, requests[0].Domain, decided)
	}
	return decided, nil
}

// apart reports whether err says that a store cannot decide several demands together.
func apart(err error) bool {
	return errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, driver.ErrNoScript)
}
