// Package layer has stores that wrap another store: each forwards to the store inside and adds one
// thing. They can be nested. If the store inside keeps the contract of [driver.Store], Timeout,
// Prefix and the breaker keep it. ResetCorrupt keeps it except for corrupt states, and Degraded
// except in an outage of the store inside and while it records what it admitted in the outage; see
// there.
//
//   - [Timeout] ends calls in time.
//   - [Prefix] keeps the keys of several users of one store apart.
//   - [ResetCorrupt] resets states that are corrupt.
//   - [Degraded] decides from memory while the store is unavailable.
//   - Package layer/breaker stops calling a failing store until it recovers. It is a package of its
//     own because it needs another module.
//
// A layer sees only the calls that pass through it. From the outside to the inside a sensible order
// is Degraded, which decides while the breaker is open; the breaker; ResetCorrupt; Timeout; Prefix.
package layer
