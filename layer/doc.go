// Package layer has stores that wrap another store: each forwards to the store inside and adds one
// thing. They can be nested. If the store inside keeps the contract of [driver.Store], Timeout,
// Prefix and Breaker keep it. ResetCorrupt keeps it except for corrupt states, and Degraded
// except in an outage of the store inside and while it records what it admitted in the outage; see
// there.
//
//   - [Timeout] ends calls in time.
//   - [Prefix] keeps the keys of several users of one store apart.
//   - [ResetCorrupt] resets states that are corrupt.
//   - [Degraded] decides from memory while the store is unavailable.
//   - [Breaker] stops calling a failing store until it recovers.
//
// A layer sees only the calls that pass through it. From the outside to the inside a sensible order
// is Degraded, which decides while the breaker is open; Breaker; ResetCorrupt; Timeout; Prefix.
package layer
