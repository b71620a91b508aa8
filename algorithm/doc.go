// Package algorithm has the rules that decide, each as a pure state machine in Go and, for stores
// on servers, the same in Lua.
//
//	limiter, err := ratelimit.New(store, algorithm.SlidingLog(ratelimit.PerMinute("login", 60)))
//
// [SlidingLog] is exact. The others admit up to twice their Max in a rolling Window and keep 32
// bytes for each key: [TokenBucket] (or [GCRA]) spreads what it admits, [FixedWindow] counts in
// windows of the calendar, and [SlidingWindowCounter] estimates a rolling window from two of them.
// [Blocking] refuses keys for a time.
//
// The two forms of an algorithm have one byte format: what either writes the other reads, and both
// decide alike. Package lua in backend/lua has the code that runs the Lua form.
package algorithm
