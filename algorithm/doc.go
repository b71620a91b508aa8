// Package algorithm has the rate-limiting algorithms, each as a pure state machine in Go and, for
// stores on servers, in Lua.
//
//	limiter, err := ratelimit.New(store, algorithm.SlidingLog(ratelimit.PerMinute("login", 60)))
//
// [SlidingLog] is exact, and the one to choose unless its memory is too much. [TokenBucket] (or
// [GCRA], from a limit), [FixedWindow] and [SlidingWindowCounter] keep up to 40 bytes for each key,
// and admit up to twice their Max in a rolling Window: a token bucket spreads what it admits, a
// fixed window starts anew at fixed times, and the counter estimates a rolling window from two
// fixed ones. [Weekly], [Monthly] and [Quarterly] count in those of the calendar. [Blocking]
// refuses a key for some time.
//
// The Go and the Lua form of an algorithm use the same byte format: each reads what the other
// writes, and both decide alike. Package backend/lua runs the Lua form.
package algorithm
