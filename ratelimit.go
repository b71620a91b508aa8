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
// A unit is what a limit counts, and a key is what is limited, such as a user: any non-empty string
// of bytes. A refusal is a [Result], never an error. Windows and waiting times are measured by the
// store's clock: the server's for Redis and Valkey, the monotonic clock of the process for memory.
//
// # Errors
//
// An error means that the call is undecided. [ErrUnavailable] without [ErrOutcomeUnknown] means
// that nothing was recorded; ErrOutcomeUnknown, that the call may have been recorded, and the
// module never repeats it. The [Policy] of a limiter says what happens when its store is
// unavailable.
//
// All other errors are returned before anything is recorded: [ErrInvalid], [ErrExceedsLimit] and
// [ErrInvalidToken] report a call that is wrong whatever the state of the store, [ErrQueueFull] too
// many calls that wait, and [errors.ErrUnsupported] an algorithm or a combination of keys that the
// store does not support.
//
// All types of this module are safe for concurrent use, unless they say otherwise.
package ratelimit

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/direct"
	"github.com/truewindow/ratelimit/internal/longkey"
)

// A Limiter decides what a key may spend under one limit, or under several together, on one store.
// Limiters are immutable and cheap, and many may share a store: make one with [New] for each limit
// or plan, once, and not for each key or call, since calls that wait have an order only within one.
//
// A Limiter of several limits admits a call only if all limits admit it, and then records it under
// each; if one refuses, none records it. Its methods return the result of the limit that binds,
// which [Binding] defines; [AllowAll] returns those of all.
//
// Errors wrap [ErrInvalid] if the key is empty or n is negative or too large, [ErrExceedsLimit] if
// n is more than [Limiter.Max], [ErrUnavailable] if the store left the call undecided or the
// context has ended, or [errors.ErrUnsupported] if the store cannot run the algorithm or cannot
// decide several limits together. With an error the Result is zero; [Limiter.WaitN] is the
// exception.
//
// The units of a limit of calls in flight are held, not taken: AllowN, Force and WaitN return an
// error that wraps [ErrInvalid]; use [Limiter.Reserve] and [Limiter.Acquire].
type Limiter struct {
	store      Store
	direct     direct.Taker // of store, or nil
	algorithms []Algorithm
	limits     []Limit // of algorithms
	policy     Policy
	holds      bool        // an algorithm has holds
	inFlight   bool        // an algorithm has nothing but holds
	waiting    *waitQueues // shared by all copies of a limiter

	observe func(context.Context, Observation) // or nil
}

// New returns a limiter with one limit for each algorithm, all on store. It does no I/O.
//
// Every limit needs a name, which together with the key and the name of the algorithm identifies
// its history. An error wraps [ErrInvalid]: something is missing, out of range, or there twice, or
// there are more than [driver.MaxDemands] limits.
func New(store Store, algorithms ...Algorithm) (*Limiter, error) {
	if store == nil {
		return nil, fmt.Errorf("%w options: no store", ErrInvalid)
	}
	if len(algorithms) == 0 {
		return nil, fmt.Errorf("%w options: no limit", ErrInvalid)
	}
	if len(algorithms) > driver.MaxDemands {
		return nil, fmt.Errorf("%w options: %d limits, more than %d", ErrInvalid, len(algorithms),
			driver.MaxDemands)
	}
	l := &Limiter{store: store, algorithms: slices.Clone(algorithms), waiting: newWaitQueues()}
	for _, a := range algorithms {
		if err := checkAlgorithm(a); err != nil {
			return nil, err
		}
		l.limits = append(l.limits, a.Limit())
		if h, ok := a.(driver.Holder); ok {
			l.holds, l.inFlight = true, l.inFlight || h.InFlight()
		}
	}
	if err := checkDistinct(algorithms); err != nil {
		return nil, err
	}
	if d, ok := store.(direct.Store); ok {
		l.direct = d.Direct(store)
	}
	return l, nil
}

// checkDistinct returns an error if two algorithms would share the history of a key.
func checkDistinct(algorithms []Algorithm) error {
	for i, a := range algorithms {
		for _, b := range algorithms[:i] {
			if a.Limit().Name == b.Limit().Name && a.Name() == b.Name() {
				return fmt.Errorf("%w limit: the name %q occurs twice", ErrInvalid, a.Limit().Name)
			}
		}
	}
	return nil
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
		return fmt.Errorf("%w limit: %v has no name, and limits with the same name share a "+
			"history: name it, as in ratelimit.PerMinute(\"login\", 60)", ErrInvalid, l)
	}
	return nil
}

// WithPolicy returns a copy of l with the policy p, which applies when the store is unavailable.
// The default is [FailClosed], and an unknown p acts like it.
func (l *Limiter) WithPolicy(p Policy) *Limiter {
	with := *l
	with.policy = p
	return &with
}

// WithObserver returns a copy of l that calls observe at the end of each call that decides, records
// or resets something, after the policy has been applied: once for a call, or for each claim of l
// in a call of several claims. It also calls observe for holds that end without a call, as
// Observation.Open says. A nil observe removes the observer.
//
// The caller waits for observe, which must be safe for concurrent use, should return soon, and must
// not use the reservation. If it panics, so does the call, which has decided all the same; a
// reservation that was to be made is canceled. In the background, where holds are renewed and
// settlements repeated, a panic ends the process.
func (l *Limiter) WithObserver(observe func(context.Context, Observation)) *Limiter {
	with := *l
	with.observe = observe
	return &with
}

// Limits returns the limits in the order of New's arguments, which is also that of the results of
// [AllowAll]. Do not change them.
func (l *Limiter) Limits() []Limit { return l.limits }

// Algorithms returns New's arguments. Do not change them.
func (l *Limiter) Algorithms() []Algorithm { return l.algorithms }

// Max returns the most units that a call can be admitted for: the smallest Max of l's limits.
func (l *Limiter) Max() int64 {
	most := l.limits[0].Max
	for _, limit := range l.limits[1:] {
		most = min(most, limit.Max)
	}
	return most
}

// Allow is AllowN of one unit.
func (l *Limiter) Allow(ctx context.Context, key string) (res Result, err error) {
	err = l.allow(ctx, key, 1, &res)
	return res, err
}

// AllowN takes n units for key if all limits admit them now. A refusal is a Result with Allowed
// false, not an error. With n = 0 it is [Limiter.Peek].
func (l *Limiter) AllowN(ctx context.Context, key string, n int64) (res Result, err error) {
	err = l.allow(ctx, key, n, &res)
	return res, err
}

// allow is AllowN. A call of one limit that nobody observes needs no call struct. A Result has more
// words than registers, so it is written where the caller finds it.
func (l *Limiter) allow(ctx context.Context, key string, n int64, res *Result) (err error) {
	if len(l.algorithms) > 1 || l.observe != nil || n == 0 || l.inFlight {
		*res, err = l.decide(ctx, partOf(l, driver.OpTake, key, n), (*call).ask)
		return err
	}
	if err = l.take(ctx, key, driver.OpTake, n, res); err == nil {
		return nil
	}
	if *res = (Result{}); l.admits(ctx, driver.OpTake, err) {
		*res, err = open(l.limits[0], driver.OpTake, n), nil
	}
	return err
}

// Force records n units for key under all limits, even if they do not fit. Use it for units that
// are already spent, or that must not be refused. A limit may then hold more than its Max, and n
// may be more than Max; the limit admits again when enough units have left the window. The Result
// is Allowed. With n = 0 it is [Limiter.Peek].
func (l *Limiter) Force(ctx context.Context, key string, n int64) (Result, error) {
	return l.decide(ctx, partOf(l, driver.OpForce, key, n), (*call).ask)
}

// Peek returns what Allow would, and takes nothing. Remaining is not reduced by that unit.
func (l *Limiter) Peek(ctx context.Context, key string) (Result, error) {
	return l.decide(ctx, partOf(l, driver.OpPeek, key, 1), (*call).ask)
}

// Wait is WaitN of one unit.
func (l *Limiter) Wait(ctx context.Context, key string) (Result, error) {
	return l.WaitN(ctx, key, 1)
}

// WaitN takes n units as soon as they are free. With n = 0 it waits until one unit is free and
// takes nothing.
//
// Calls that wait for the same key are admitted in the order in which they began, even if a later
// one needs fewer units. Only the first calls the store, and sleeps for RetryAfter when refused.
// Copies of a limiter share its queues. Between limiters and between processes there is no order,
// and a large demand may starve.
//
// The first call returns at once if its RetryAfter under limits without holds does not end before
// its deadline; holds may end at any time. The error wraps [context.DeadlineExceeded]. If ctx ends
// while a call sleeps or is behind others, the error wraps that of ctx. In both cases nothing was
// taken, and the Result is the last refusal, unless the store has failed since. If ctx ends while
// the store is called, the error is the store's.
//
// At most 10,000 calls wait for a key; further ones fail with [ErrQueueFull]. After an error of the
// store the next call becomes the first; see also [FailWait].
func (l *Limiter) WaitN(ctx context.Context, key string, n int64) (Result, error) {
	return l.decide(ctx, partOf(l, driver.OpTake, key, n), (*call).wait)
}

// Reset deletes the history of key under all limits of l, and what is held. No policy applies: an
// error of the store is returned.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	if l.holds {
		defer l.waiting.forget(longkey.Shorten(key)) // after an error too: it may be reset
	}
	_, err := l.decide(ctx, part{limiter: l, op: driver.OpReset, key: key}, (*call).ask)
	return err
}

// decide makes a call of one part, and returns the result of the limit that binds.
func (l *Limiter) decide(
	ctx context.Context, p part, decide func(*call, context.Context) error,
) (Result, error) {
	c := newCall(p)
	defer c.release()
	err := c.do(ctx, decide)
	return c.binding(), err
}

// A Policy says what a [Limiter] does when the store is unavailable ([driver.IsOutage]). The zero
// Policy is FailClosed.
type Policy uint8

// The policies.
const (
	// FailClosed returns the error.
	FailClosed Policy = iota
	// FailOpen admits the demand without an error, with a Result of [SourceOpen]. Nothing is
	// recorded: there is no limit while the store is unavailable. FailOpen applies to takes, Force,
	// peeks and reservations, but not to Reset and settlements, and not to a call whose context has
	// ended, since callers could evade the limit by short deadlines.
	FailOpen
	// FailWait returns the error, except that the waits (Wait, WaitAll, Acquire and their like)
	// retry until the store is available, or the context ends or would end during the next pause.
	// They retry after [driver.ErrContended] too. Pauses grow from about 10 ms to a second. Two
	// errors end a wait all the same: [ErrOutcomeUnknown], since the demand might count twice, and
	// [driver.ErrClosed].
	FailWait

	numPolicies
)

var policyNames = [numPolicies]string{"closed", "open", "wait"}

// String returns "closed", "open" or "wait", or "policy(9)" for an unknown policy.
func (p Policy) String() string {
	if p >= numPolicies {
		return fmt.Sprintf("policy(%d)", uint8(p))
	}
	return policyNames[p]
}

// An Observation is one call of a method of a [Limiter] or [Reservation] and its outcome, as the
// caller gets it. See [Limiter.WithObserver]. Holds that are lost or late are observed too, by
// themselves; see Open.
type Observation struct {
	// Key is user data: do not write it to logs or use it as a label of a metric.
	Key string
	// Op is the operation: OpTake for a wait, OpHold for what reserves, extends or renews, OpSettle
	// for what ends a reservation. With n = 0 a call is observed as an OpPeek for one unit.
	Op driver.Op
	// N is the number of units: of a claim with a Least those that it got, or its Least if it got
	// none. It is 0 for an OpReset, for an OpHold that renews, and for an OpSettle of no units.
	N int64
	// Limits are the limits of the limiter, in the order of New's arguments; those with holds,
	// where only holds are settled, extended or renewed. Do not change them.
	Limits []Limit
	// Results has the result of each limit. After an error they are zero, except that a wait that
	// gave up has its last refusal, unless the store has failed since. They are valid only until
	// the observer returns: copy them to keep them.
	Results []Result
	// Admitted means that there was no error and no limit refused, those of the other claims of the
	// call included. Otherwise nothing was taken.
	Admitted bool
	// Err is the error that the caller gets, except [ErrNotHeld], or nil. If it wraps
	// [ErrUnavailable], the store left the demand undecided and the policy did not admit it.
	Err error
	// Elapsed is how long the call took, Waited included.
	Elapsed time.Duration
	// Waited is how long a wait slept or was behind others in the queue; 0 for other calls.
	Waited time.Duration
	// Open is the change in the number of open holds of this process under each limit, 1, 0 or -1;
	// nil if there is none. A hold is open from the first answer that says that it is held until it
	// is settled, lost or left to a token. A reservation that was resumed is open from its first
	// renewal or extension.
	//
	// If Open is set and Admitted is not, no call was made: this is an OpSettle of holds that have
	// ended by themselves, and Err says why:
	//   - [ErrNotHeld]: they are lost. The store did not have them any more, or nobody settles
	//     them: the program has dropped the reservation, the store is closed, or a Cancel has
	//     failed for the last time.
	//   - [context.DeadlineExceeded]: they were late. Their time-out was over by this process's
	//     clock when they were renewed, extended or settled, so others may have had their units.
	//     If they are held again, that opens them.
	//   - nil: they are left to a token.
	Open []int
}

// Names of package driver that users of limiters need.
type (
	// A Limit is at most Max units in any Window.
	Limit = driver.Limit
	// A Result is a decision.
	Result = driver.Result
	// Source says where a decision was made.
	Source = driver.Source
	// A Store keeps states and makes decisions atomic.
	Store = driver.Store
	// An Algorithm decides.
	Algorithm = driver.Algorithm
)

// The sources of a [Result].
const (
	SourceStore = driver.SourceStore // the store's state
	SourceCache = driver.SourceCache // an earlier refusal of the store that still holds
	SourceLocal = driver.SourceLocal // the memory of this process, while the store is unavailable
	SourceOpen  = driver.SourceOpen  // the policy [FailOpen], while the store is unavailable
	SourceLease = driver.SourceLease // units that this process has taken from the store ahead
)

// PerSecond returns a limit of at most the given units in any second.
func PerSecond(name string, units int64) Limit { return driver.PerSecond(name, units) }

// PerMinute returns a limit of at most the given units in any minute.
func PerMinute(name string, units int64) Limit { return driver.PerMinute(name, units) }

// PerHour returns a limit of at most the given units in any hour.
func PerHour(name string, units int64) Limit { return driver.PerHour(name, units) }

// PerDay returns a limit of at most the given units in any 24 hours.
func PerDay(name string, units int64) Limit { return driver.PerDay(name, units) }

// ParseLimit reads a limit such as "login=60/1m" or "100/s"; see [driver.ParseLimit].
func ParseLimit(s string) (Limit, error) { return driver.ParseLimit(s) }

// Errors that users of limiters handle; see the variables of package driver.
var (
	ErrInvalid        = driver.ErrInvalid        // an argument is wrong
	ErrExceedsLimit   = driver.ErrExceedsLimit   // more units than the limit ever admits
	ErrUnavailable    = driver.ErrUnavailable    // undecided
	ErrOutcomeUnknown = driver.ErrOutcomeUnknown // undecided, but perhaps recorded
)
