// Package layer has stores around a store: each forwards to the store inside and adds one thing. They go into each other in any order
// that makes sense, and each keeps the contract of [ratelimit.Store] if the store inside does.
//
//   - [Deadline] ends calls in time.
//   - [Prefix] keeps the keys of one user of a store apart from those of others.
//   - [Observed] tells of each decision, for metrics and logs.
//   - [Afresh] begins anew where the state of a key is corrupt.
//   - [Degraded] decides from memory while the store is away.
//   - Package layer/breaker asks a store that is away no more, until it is back. It is a package of its own, since it needs another module.
//
// What a layer knows is what passes it. From the outside to the inside, this is an order that makes sense: Observed, to tell what callers
// are answered; Degraded, to decide what the breaker refuses; the breaker; Afresh; Deadline; Prefix.
package layer
