// Package algorithm has the rules that decide, each as a pure state machine in Go and, for stores on servers, the same
// in Lua; and the frame that runs the Lua.
//
//	limiter, err := ratelimit.New(store, algorithm.SlidingLog(ratelimit.PerMinute(60)))
//
// [SlidingLog] is exact. Its two forms have one byte format: what either writes the other reads, and both decide alike.
package algorithm
