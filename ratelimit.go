// Package ratelimit answers one question, exactly: may this key spend n more units now?
//
// An [Algorithm] decides, a [Store] keeps the state and makes the decision atomic, and a [Limiter]
// joins the two. The main algorithm is the exact sliding-window log of package algorithm: at most
// Max units are admitted in every window (t−W, t], where W is the Window of the limit and t is any
// instant.
//
//	store, err := memorystore.New(nil)
//	…
//	limiter, err := ratelimit.New(store, algorithm.SlidingLog(ratelimit.PerMinute("login", 60)))
//	…
//	res, err := limiter.Allow(ctx, "user:42")
//	switch {
//	case err != nil: // undecided: the store is unavailable
//	case !res.Allowed: // refused: try again after res.RetryAfter
//	}
//
// # Terms
//
//   - A unit is what a limit counts. A request costs one unit unless the caller says otherwise.
//   - A limit is at most Max units in any Window.
//   - A key names what is limited, such as a user or a tenant. It is any non-empty string of bytes
//     and never appears in an error.
//   - A demand is one (key, algorithm, n) to be decided. It is admitted or refused; a refusal is a
//     [Result], never an error.
//   - A state, or history, is what a store keeps of the past admissions of a key. The key, the name
//     of the limit and the name of the algorithm identify it.
//   - A stamp is an instant on the store's clock, in microseconds since the Unix epoch.
//   - A record is what a state keeps of the admissions with one stamp.
//
// # Clock
//
// All windows and waiting times are measured by the store's clock, which all users of one store
// share: the server's clock for Redis and Valkey, the process's monotonic clock for memory. The
// caller's clock does not matter.
//
// # Errors
//
// An error means that the demand is undecided. [ErrUnavailable] without [ErrOutcomeUnknown] means
// that nothing was recorded. [ErrOutcomeUnknown], which wraps [ErrUnavailable], means that the
// demand may have been recorded. After ErrOutcomeUnknown the module never repeats the call. After
// other errors that wrap ErrUnavailable it does so in two cases only: in a wait, as [FailWait]
// describes, and in layer.ResetCorrupt after [driver.ErrCorruptState]. The [Policy] of a limiter says
// whether it admits a demand that the store leaves undecided.
//
// All other errors are returned before anything is recorded. They report a call that is wrong
// whatever the state of the store ([ErrInvalid], [ErrInvalid], [ErrInvalid],
// [ErrExceedsLimit], [ErrInvalid], [ErrInvalidToken]), an algorithm or a combination of
// keys that the store does not support ([errors.ErrUnsupported]), a queue that is full
// ([ErrQueueFull]), or a wait that gave up, which may return a refusal beside its error
// ([Limiter.WaitN]).
//
// # Concurrency
//
// All types of this module are safe for concurrent use by multiple goroutines, unless they say
// otherwise.
package ratelimit

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/truewindow/ratelimit/driver"
)

// A Limiter decides demands under one limit, or under several together, on one store. Limiters are
// immutable and cheap, and many may share a store. Create one with [New].
//
// A Limiter of several limits admits a demand only if all limits admit it, and then records it
// under each; if one refuses, none records it. Its methods return the result of the limit that
// binds, which [Binding] defines. AllowEach, PeekEach and WaitEach return the results of all
// limits.
//
// When the store is unavailable, the [Policy] decides; see [Limiter.With]. If a method returns an
// error, its Result is zero, except as described at [Limiter.WaitN].
//
// The errors of its methods wrap one of these:
//   - [ErrInvalid]: the key is empty, or n is negative or more than [driver.MaxUnits].
//   - [ErrExceedsLimit]: n is more than [Limiter.Max], but not more than MaxUnits. Force and
//     GiveBack accept a larger n.
//   - [ErrUnavailable]: the demand is undecided. This includes a call whose context has ended.
//   - [errors.ErrUnsupported]: the store cannot run the algorithm ([driver.ErrNoScript]), or cannot decide
//     several limits together.
//
// Waits and reservations have further errors; see [Limiter.WaitN], [Reservation.Commit] and
// [Limiter.TryAcquire]. A call that fails with [ErrOutcomeUnknown] may have been recorded. No other
// call that fails was recorded.
type Limiter struct {
	store      Store
	algorithms []Algorithm
	limits     []Limit // of algorithms
	policy     Policy
	observe    func(context.Context, Observation) // or nil
	// single is the only algorithm, if there is neither an observer nor a shadow, else nil.
	single   Algorithm
	direct   driver.Taker // of store, or nil
	pool     *sync.Pool   // of *scratch
	inFlight bool         // l limits calls in flight: units are held, not spent
	shadow   *shadow      // or nil
	waiting  *waitQueues  // shared by all copies of a limiter
}

// New returns a limiter with one limit for each algorithm, all on store. It does no I/O.
//
// Every limit needs a name, which together with the key identifies its history. An error wraps
// [ErrInvalid]; [ErrInvalid] if there is no store or no algorithm, or if an algorithm
// is nil or not comparable with ==; or [ErrInvalid] if two limits have the same name and
// algorithms of the same name.
func New(store Store, algorithms ...Algorithm) (*Limiter, error) {
	if store == nil {
		return nil, fmt.Errorf("%w options: no store", ErrInvalid)
	}
	if len(algorithms) == 0 {
		return nil, fmt.Errorf("%w options: no limit", ErrInvalid)
	}
	limits := make([]Limit, len(algorithms))
	for i, a := range algorithms {
		if err := checkAlgorithm(a); err != nil {
			return nil, err
		}
		limits[i] = a.Limit()
	}
	if err := checkDistinct(algorithms); err != nil {
		return nil, err
	}
	l := &Limiter{
		store: store, algorithms: slices.Clone(algorithms), limits: limits,
		waiting: newWaitQueues(),
	}
	l.pool = &sync.Pool{New: func() any {
		return &scratch{make([]driver.Demand, len(limits)), make([]Result, len(limits))}
	}}
	if d, ok := store.(driver.DirectStore); ok {
		l.direct = d.Direct(store)
	}
	return l.WithObserver(nil), nil
}

func checkAlgorithm(a Algorithm) error {
	if a == nil {
		return fmt.Errorf("%w options: an algorithm is nil", ErrInvalid)
	}
	if !reflect.ValueOf(a).Comparable() {
		return fmt.Errorf("%w options: values of %T cannot be compared with ==", ErrInvalid, a)
	}
	if err := a.Validate(); err != nil {
		return err
	}
	if l := a.Limit(); l.Name == "" {
		return fmt.Errorf("%w limit: the limit %v has no name, and limits with the same name share a "+
			"history: name it, as in ratelimit.PerMinute(\"login\", 60)", ErrInvalid, l)
	}
	return nil
}

// With returns a copy of l with the policy p, which applies when the store is unavailable. The
// default is [FailClosed], and an unknown p acts like it.
func (l *Limiter) With(p Policy) *Limiter {
	with := *l
	with.policy = p
	return &with
}

// WithObserver returns a copy of l that calls observe at the end of each call that decides, records
// or resets something, after the policy has been applied: once for a call, or for each claim of l
// in a call of several claims. A nil observe removes the observer. The caller waits for observe,
// which must be safe for concurrent use and should return soon.
func (l *Limiter) WithObserver(observe func(context.Context, Observation)) *Limiter {
	with := *l
	with.observe, with.single = observe, nil
	if observe == nil && l.shadow == nil && len(l.algorithms) == 1 {
		with.single = l.algorithms[0]
	}
	return &with
}

// WithShadow returns a copy of l that repeats each call for units on shadow, including the claims
// of [AllowAll] and [ReserveAll]. Use it to try a limit, an algorithm or a store before you rely on
// it: the results of l do not depend on shadow, and callers of l do not wait for it. Shadow takes
// the units if its own limits admit them. It is called after l has decided; for [Limiter.WaitN],
// when the wait has ended. It is not called for a claim that was refused only because of another
// claim.
//
// The observer of shadow gets each decision of shadow, and in [Observation.Shadowed] the results of
// l. While 1,000 calls of shadow are in flight, further ones are dropped, and counted in
// [Observation.Dropped]. Settlements, Force and
// GiveBack are not repeated on shadow: the shadow of a budget counts estimates, and the shadow of a
// limiter of calls in flight counts each call until it has left the window.
//
// A panic in shadow's store or algorithm does not end the process: shadow's observer gets it as a
// [ShadowPanicError]. A panic in that observer is recovered and dropped.
//
// An error wraps [ErrInvalid] if shadow is nil or has a shadow itself, or if both have a
// limit of the same name, under algorithms of the same name: on one store, or on two that end at
// one server, both would count in one history.
func (l *Limiter) WithShadow(shadow *Limiter) (*Limiter, error) {
	if shadow == nil || shadow.shadow != nil {
		return nil, fmt.Errorf("%w options: the shadow is nil or has a shadow itself", ErrInvalid)
	}
	if err := checkDistinct(slices.Concat(l.algorithms, shadow.algorithms)); err != nil {
		return nil, fmt.Errorf("%w options: the limits of a shadow need other names: %w",
			ErrInvalid, err)
	}
	with := *l
	with.shadow, with.single = newShadow(shadow), nil
	return &with, nil
}

// Limits returns a copy of the limits, in the order of New's arguments. AllowEach, PeekEach and
// WaitEach return their results in the same order.
func (l *Limiter) Limits() []Limit { return slices.Clone(l.limits) }

// AppendLimits appends the limits to dst, in the order of Limits.
func (l *Limiter) AppendLimits(dst []Limit) []Limit { return append(dst, l.limits...) }

// Max returns the most units that a call can be admitted for: the smallest Max of l's limits.
func (l *Limiter) Max() int64 {
	most := l.limits[0].Max
	for _, limit := range l.limits[1:] {
		most = min(most, limit.Max)
	}
	return most
}

// Allow is AllowN of one unit.
func (l *Limiter) Allow(ctx context.Context, key string) (Result, error) {
	return l.AllowN(ctx, key, 1)
}

// AllowN takes n units for key if all limits admit them now. A refusal is a Result with Allowed
// false, not an error. With n = 0 it is [Limiter.Peek].
func (l *Limiter) AllowN(ctx context.Context, key string, n int64) (res Result, err error) {
	if l.single == nil || n == 0 {
		return l.binding(ctx, take(key, n))
	}
	if l.direct != nil {
		res.Allowed, res.Source, res.Remaining, res.RetryAfter, res.ResetAfter, res.At, err =
			l.direct.TakeFields(ctx, key, l.single, driver.OpTake, n, 0)
		res.Limit = l.limits[0]
	} else {
		res, err = l.store.Take(ctx, driver.Demand{Key: key, Algorithm: l.single, N: n})
	}
	if err == nil {
		return res, nil
	}
	if l.admits(ctx, driver.OpTake, err) {
		return open(l.limits[0]), nil
	}
	return Result{}, err
}

// AllowEach is AllowN with the result of each limit appended to dst, in the order of Limits. The
// demand was admitted if all of them are Allowed. After an error dst is returned unchanged.
func (l *Limiter) AllowEach(
	ctx context.Context, key string, n int64, dst []Result,
) ([]Result, error) {
	return l.each(ctx, take(key, n), dst)
}

// Force records n units for key under all limits, even if they do not fit. Use it for units that
// are already spent, or that must not be refused. A limit may then hold more than its Max, and n
// may be more than Max; the limit admits again when enough units have left the window. The Result
// is Allowed. With n = 0 it is [Limiter.Peek].
func (l *Limiter) Force(ctx context.Context, key string, n int64) (Result, error) {
	c := take(key, n)
	if n != 0 {
		c.op = driver.OpForce
	}
	return l.binding(ctx, c)
}

// Peek returns what Allow would, and takes nothing. Remaining is not reduced by that unit.
func (l *Limiter) Peek(ctx context.Context, key string) (Result, error) {
	return l.binding(ctx, call{op: driver.OpPeek, key: key, n: 1})
}

// PeekEach returns what AllowEach would, and takes nothing. With n = 0 it peeks for one unit.
func (l *Limiter) PeekEach(
	ctx context.Context, key string, n int64, dst []Result,
) ([]Result, error) {
	if n == 0 {
		n = 1
	}
	return l.each(ctx, call{op: driver.OpPeek, key: key, n: n}, dst)
}

// Wait is WaitN of one unit.
func (l *Limiter) Wait(ctx context.Context, key string) (Result, error) {
	return l.WaitN(ctx, key, 1)
}

// WaitN takes n units as soon as they are free. With n = 0 it waits until one unit is free and
// takes nothing.
//
// Calls that wait for the same key are admitted in the order in which they began, even if a later
// one needs fewer units. Only the first calls the store: it sleeps for exactly RetryAfter and calls
// the store again. It is refused again if others were admitted meanwhile. On a limiter of
// [NewInFlight] it calls the store again sooner.
//
// A limiter from New shares its queues with all copies that With, WithObserver and WithShadow make
// of it. There is no order between these and calls of AllowN, other limiters or other processes.
//
// If RetryAfter does not end before the context's deadline, WaitN returns at once, with the refusal
// and an error that wraps [context.DeadlineExceeded]. A call behind the first returns in the same
// way if two conditions hold: the first needs no more units than this call, and must wait until
// this call's deadline or longer. It returns the refusal of the first, with [SourceCache] in place
// of [SourceStore]; that refusal may no longer hold, for example because units were given back. On
// a limiter of [NewInFlight] calls do not return early. If the context ends while WaitN sleeps or
// is behind others, WaitN returns an error that wraps the context's error, with the last refusal if
// the store returned one. In all of these cases nothing was taken. If the context ends while the
// store is called, WaitN returns the store's error, which may be [ErrOutcomeUnknown], and a zero
// Result.
//
// At most 10,000 calls wait for a key; further ones fail with [ErrQueueFull]. If the store returns
// an error, only the first call fails, and the next in the queue becomes the first. Under
// [FailWait] the first call tries again after some errors.
func (l *Limiter) WaitN(ctx context.Context, key string, n int64) (Result, error) {
	c := take(key, n)
	c.wait = true
	return l.binding(ctx, c)
}

// WaitEach is WaitN with the result of each limit appended to dst, in the order of Limits. If WaitN
// returns a refusal with its error, WaitEach appends the results of that refusal. After any other
// error dst is returned unchanged.
func (l *Limiter) WaitEach(
	ctx context.Context, key string, n int64, dst []Result,
) ([]Result, error) {
	s := l.pool.Get().(*scratch)
	defer l.release(s)
	c := take(key, n)
	c.wait = true
	err := l.do(ctx, c, s)
	if err != nil && (s.results[0] == Result{}) {
		return dst, err
	}
	return append(dst, s.results...), err
}

// GiveBack gives n units of an admission back, so that others can take them. Pass the results of
// the call that took the units: its Result if the limiter has one limit, or all results of
// AllowEach if it has several. A limit gets back no more units than the record of the admission
// still holds, and none after the record has left the window. Calls of the same instant share a
// record, so an n larger than what the call took may give back units of others. An algorithm that
// keeps no records gives back only what still counts; its documentation says what that is.
//
// With n = 0, or for an admission of [SourceOpen], which recorded nothing, GiveBack does nothing.
// An error wraps [ErrInvalid], before any I/O, if there is not one result for each limit or
// if one of them is a refusal. No policy applies: an error of the store is returned.
func (l *Limiter) GiveBack(ctx context.Context, key string, n int64, admission ...Result) error {
	_, err := l.binding(ctx, call{op: driver.OpGiveBack, key: key, n: n, admission: admission})
	return err
}

// Reset deletes the history of key under all limits of l. No policy applies: an error of the store
// is returned.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	_, err := l.binding(ctx, call{op: driver.OpReset, key: key})
	return err
}

// binding makes a call and returns the result of the limit that binds.
func (l *Limiter) binding(ctx context.Context, c call) (Result, error) {
	s := l.pool.Get().(*scratch)
	defer l.release(s)
	err := l.do(ctx, c, s)
	return s.results[Binding(s.results)], err
}

// each makes a call and appends the result of each limit to dst.
func (l *Limiter) each(ctx context.Context, c call, dst []Result) ([]Result, error) {
	s := l.pool.Get().(*scratch)
	defer l.release(s)
	if err := l.do(ctx, c, s); err != nil {
		return dst, err
	}
	return append(dst, s.results...), nil
}

// do makes a call, writes the results to s and calls the observer.
func (l *Limiter) do(ctx context.Context, c call, s *scratch) (err error) {
	if l.shadow != nil {
		defer func() { l.askShadow(ctx, c, s.results, err) }() // also if the store panics
	}
	if l.observe == nil {
		_, err = l.decide(ctx, c, s)
		return err
	}
	began := time.Now()
	waited, err := l.decide(ctx, c, s)
	l.observe(ctx, Observation{
		Key: c.key, Op: c.op, N: c.n, Limits: l.limits, Results: s.results, Err: err,
		Elapsed: time.Since(began), Waited: waited,
	})
	return err
}

// decide makes a call without observing it, and returns how long it waited.
func (l *Limiter) decide(ctx context.Context, c call, s *scratch) (time.Duration, error) {
	switch {
	case c.wait:
		return l.wait(ctx, c, s)
	case c.op == driver.OpGiveBack:
		return 0, l.giveBack(ctx, c, s)
	}
	return 0, l.ask(ctx, c, s)
}
