// Package ratelimit answers one question, exactly: may this key spend n more units now?
//
// An [Algorithm] decides, a [Store] keeps the state and makes the decision atomic, and a
// [Limiter] joins the two. The first algorithm is the exact sliding-window log of package
// algorithm: in every window (t−W, t] at most Max units are admitted, at no edge of any clock.
//
//	store, err := memorystore.New(nil)
//	…
//	limiter, err := ratelimit.New(store, algorithm.SlidingLog(ratelimit.PerMinute(60)))
//	…
//	res, err := limiter.Allow(ctx, "user:42")
//	switch {
//	case err != nil: // undecided: refuse or admit, as you chose beforehand
//	case !res.Allowed: // refused: try again after res.RetryAfter
//	}
//
// # Words
//
// A limit is at most Max units in any Window. A unit is what a request costs, an integer, 1 unless
// said otherwise. A key names who or what is limited; it may be any non-empty bytes and is never written to an
// error. A demand is one (key, algorithm, n) to be decided. A stamp is an instant on the store's
// clock in microseconds since the Unix epoch. To admit and to refuse are the two decisions: a refusal is a
// [Result], never an error.
//
// # Clock
//
// Every promise is made on the store's own clock, which all users of one store share: the
// server's for Redis and Valkey, the process's monotonic clock for memory. The caller's clock does not matter.
//
// # Errors
//
// An error means undecided. [ErrUnavailable] says that nothing was recorded;
// [ErrOutcomeUnknown], which wraps it, that the demand was sent and may have been. Neither is ever retried by this
// module. The remaining errors report a call that could not be decided whatever the store's state
// ([ErrInvalidLimit], [ErrInvalidDemand], [ErrExceedsLimit], [ErrDuplicateDemand]); they are returned before any I/O.
//
// # Concurrency
//
// All types of this module are safe for simultaneous use by multiple goroutines, unless they say otherwise.
package ratelimit
