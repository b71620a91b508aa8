// Package algorithm has the rules that decide, each as a pure state machine in Go and, for stores
// on servers, the same in Lua.
//
//	limiter, err := ratelimit.New(store, algorithm.SlidingLog(ratelimit.PerMinute("login", 60)))
//
// [SlidingLog] is exact. Its two forms have one byte format: what either writes the other reads,
// and both decide alike. Package lua in backend/lua has the code that runs the Lua form.
package algorithm
