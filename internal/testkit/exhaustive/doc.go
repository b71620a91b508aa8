// Package exhaustive makes every sequence of a few calls on small limits and compares each answer
// of the algorithms with a plain model of the contract.
//
// A sequence is every interleaving of its calls: a step is atomic, so what clients do at once is
// one call after another. A call whose answer is lost and that is made again is two calls, and a
// call that arrives late is one at a later place.
//
// It has only tests. They run without the race detector, under which they take minutes: a sequence
// has one goroutine.
package exhaustive
