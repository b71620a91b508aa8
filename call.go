package ratelimit

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/deadline"
)

// A call is one decision of a store, about a part for each claim. A method of one limiter makes a
// call of one part.
type call struct {
	parts    []part
	demands  []driver.Demand // of all parts, one for each limit
	results  []Result        // of all parts, one for each limit
	strict   bool            // no policy applies
	caller   context.Context // not nil: a call of nothing but holds is repeated until it ends
	unknown  bool            // the policies have admitted a call that may have been sent
	reserved *state          // of the reservation that the call makes, or nil
	waited   time.Duration
	early    chan struct{} // see watch; nil until a call waits for units with holds
}

// A part is what a call asks of one limiter.
type part struct {
	limiter *Limiter
	op      driver.Op // OpHold takes under limits without holds
	key     string
	n       int64
	least   int64         // OpTake, OpHold
	id      uint64        // OpHold, OpSettle
	hold    time.Duration // OpHold
	claim   int           // its index among those of the reservation
	results []Result      // a range of the call's
	open    []int         // see Observation
	asleep  *list.Element // of the limiter's queues; see watch
}

var calls = sync.Pool{New: func() any { return new(call) }}

// newCall returns a call, which the caller has to release.
func newCall(parts ...part) *call {
	c := calls.Get().(*call)
	c.parts = append(c.parts, parts...)
	c.fill()
	return c
}

// claimed returns a call with a part for each claim. id is that of an OpHold.
func claimed(op driver.Op, id uint64, claims []Claim) (*call, error) {
	if err := checkClaims(claims); err != nil {
		return nil, err
	}
	c := calls.Get().(*call)
	for i, cl := range claims {
		p := partOf(cl.Limiter, op, cl.Key, cl.N)
		p.id, p.hold, p.claim = id, cl.HoldTimeout, i
		if p.least = cl.Least; op == driver.OpPeek && p.least > 0 {
			p.n, p.least = p.least, 0
		}
		c.parts = append(c.parts, p)
	}
	c.fill()
	return c, nil
}

// partOf returns a part. Where n is 0, it peeks for one unit.
func partOf(l *Limiter, op driver.Op, key string, n int64) part {
	if n == 0 {
		op, n = driver.OpPeek, 1
	}
	return part{limiter: l, op: op, key: key, n: n}
}

// fill makes the demands of the parts, and room for their results.
func (c *call) fill() {
	for i := range c.parts {
		p := &c.parts[i]
		for _, a := range p.limiter.algorithms {
			d := driver.Demand{Key: p.key, Algorithm: a, Op: p.op, N: p.n, Least: p.least}
			if p.op == driver.OpHold || p.op == driver.OpSettle {
				switch h, ok := a.(driver.Holder); {
				case !ok:
					d.Op = driver.OpTake
				case p.op == driver.OpSettle && h.InFlight():
					d.ID, d.N = p.id, 0
				default:
					d.ID, d.HoldTimeout = p.id, p.hold
				}
			}
			c.demands = append(c.demands, d)
		}
	}
	c.results = slices.Grow(c.results, len(c.demands))[:len(c.demands)]
	at := 0
	for i := range c.parts {
		end := at + len(c.parts[i].limiter.algorithms)
		c.parts[i].results = c.results[at:end:end]
		at = end
	}
}

// release ends the use of c. The keys are memory of the caller, and a store may leave results as
// they are when it fails.
func (c *call) release() {
	clear(c.parts)
	clear(c.demands)
	clear(c.results)
	*c = call{parts: c.parts[:0], demands: c.demands[:0], results: c.results[:0]}
	calls.Put(c)
}

// do decides c and calls the observers. What has to follow a decision belongs in decide: after it
// the observers may panic.
func (c *call) do(ctx context.Context, decide func(*call, context.Context) error) error {
	if !c.observed() {
		return decide(c, ctx)
	}
	began := time.Now()
	err := decide(c, ctx)
	c.observe(ctx, 0, err, time.Since(began))
	return err
}

// observe calls the observers of the parts from i on.
func (c *call) observe(ctx context.Context, i int, err error, elapsed time.Duration) {
	for i < len(c.parts) && c.parts[i].limiter.observe == nil {
		i++
	}
	if i == len(c.parts) {
		return
	}
	defer c.observe(ctx, i+1, err, elapsed) // also if this one panics
	p := &c.parts[i]
	p.limiter.observe(ctx, Observation{
		Key: p.key, Op: p.op, N: p.granted(),
		Limits: p.limiter.limits, Results: p.results, Err: err,
		Admitted: err == nil && c.allowed(), Elapsed: elapsed, Waited: c.waited,
		Open: p.open,
	})
}

func (c *call) observed() bool {
	for i := range c.parts {
		if c.parts[i].limiter.observe != nil {
			return true
		}
	}
	return false
}

// ask calls the store, and applies the policies if the store leaves the call undecided.
func (c *call) ask(ctx context.Context) error {
	for i := range c.parts {
		p := &c.parts[i]
		if p.limiter.inFlight && (p.op == driver.OpTake || p.op == driver.OpForce) {
			return fmt.Errorf("%w demand: %v of %v, whose calls are reserved or acquired",
				ErrInvalid, p.op, p.limiter.limits)
		}
	}
	err := c.send(ctx)
	if errors.Is(err, ErrOutcomeUnknown) && c.repeatable() {
		// Another error says nothing about the first attempt.
		if again := c.send(ctx); again == nil || errors.Is(again, ErrOutcomeUnknown) {
			err = again
		}
	}
	switch {
	case err == nil:
		return nil
	case !c.admitted(ctx, err):
		clear(c.results)
		return err
	}
	c.unknown = errors.Is(err, ErrOutcomeUnknown)
	n := driver.MaxUnits // of the claims with a Least
	for _, d := range c.demands {
		if d.Least > 0 {
			n = min(n, d.N, d.Algorithm.Limit().Max)
		}
	}
	for i, d := range c.demands {
		if d.Least > 0 {
			d.N = n
		}
		c.results[i] = open(d.Algorithm.Limit(), d.Op, d.N)
	}
	return nil
}

// send calls the store once.
func (c *call) send(ctx context.Context) (err error) {
	l, d := c.parts[0].limiter, &c.demands[0]
	switch {
	case len(c.demands) > 1:
		return l.store.TakeAll(ctx, c.demands, c.results)
	case d.ID != 0, d.Least != 0:
		c.results[0], err = l.store.Take(ctx, *d)
		return err
	}
	return l.take(ctx, d.Key, d.Op, d.N, &c.results[0])
}

// repeatable reports whether a call with an unknown outcome can be made again: it only holds, so
// that twice does what once does, and its caller still waits. A peek beside the holds could refuse
// the second attempt although the first holds.
func (c *call) repeatable() bool {
	return c.caller != nil && c.caller.Err() == nil &&
		!slices.ContainsFunc(c.demands, func(d driver.Demand) bool { return d.Op != driver.OpHold })
}

// take calls the store with a demand under the only limit of l.
func (l *Limiter) take(
	ctx context.Context, key string, op driver.Op, n int64, res *Result,
) (err error) {
	a := l.algorithms[0]
	if l.direct == nil {
		*res, err = l.store.Take(ctx, driver.Demand{Key: key, Algorithm: a, Op: op, N: n})
		return err
	}
	res.Allowed, res.Source, res.Remaining, res.RetryAfter, res.ResetAfter, err =
		l.direct.TakeFields(ctx, key, a, op, n)
	res.Limit = l.limits[0]
	res.Units = driver.Taken(op, n, res.Allowed)
	return err
}

// admitted reports whether the policies of all parts admit what the store has left undecided with
// err.
func (c *call) admitted(ctx context.Context, err error) bool {
	return !c.strict && !slices.ContainsFunc(c.parts, func(p part) bool {
		return !p.limiter.admits(ctx, p.op, err)
	})
}

// admits reports whether the policy admits an op that the store has left undecided with err.
func (l *Limiter) admits(ctx context.Context, op driver.Op, err error) bool {
	return l.policy == FailOpen && (op <= driver.OpForce || op == driver.OpHold) &&
		driver.IsOutage(err) && !deadline.Passed(ctx)
}

// open returns the result of a demand that a policy has admitted.
func open(l Limit, op driver.Op, n int64) Result {
	res := Result{Allowed: true, Source: SourceOpen, Limit: l}
	if op != driver.OpPeek {
		res.Units = n
	}
	return res
}

// binding returns the result that binds.
func (c *call) binding() Result { return c.results[Binding(c.results)] }

func (c *call) allowed() bool { return c.binding().Allowed }

// granted returns how many units p got, or its least if that is not 0 and it got none.
func (p *part) granted() int64 {
	n := p.n
	if p.least > 0 {
		for _, res := range p.results {
			n = min(n, max(p.least, res.Units))
		}
	}
	return n
}

// checkClaims returns an error if claims cannot be decided together.
func checkClaims(claims []Claim) error {
	if len(claims) == 0 {
		return fmt.Errorf("%w demand: no claim", ErrInvalid)
	}
	for i, c := range claims {
		if c.Limiter == nil {
			return fmt.Errorf("%w demand: claim %d has no limiter", ErrInvalid, i+1)
		}
		if i > 0 && !sameStore(claims[0].Limiter.store, c.Limiter.store) {
			return fmt.Errorf("%w demand: claims 1 and %d are on different stores", ErrInvalid, i+1)
		}
		if c.Least < 0 || c.Least > max(c.N, 0) {
			return fmt.Errorf("%w demand: claim %d has a Least of %d and an N of %d",
				ErrInvalid, i+1, c.Least, c.N)
		}
	}
	return nil
}

// sameStore reports whether a and b are the same store. Stores of a type that is not comparable are
// never the same.
func sameStore(a, b Store) bool {
	return reflect.TypeOf(a) == reflect.TypeOf(b) && reflect.ValueOf(a).Comparable() && a == b
}
