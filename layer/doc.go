// Package layer has stores that wrap another store: each forwards to the store inside and adds one
// thing. They can be nested. If the store inside keeps the contract of [driver.Store], Timeout,
// Prefix, HashedKeys and Breaker keep it. ResetCorrupt keeps it except for corrupt states, Degraded
// except in an outage of the store inside and while it records what it admitted in the outage, and
// Leased except for hot keys; see there.
//
//   - [Timeout] ends calls in time.
//   - [Prefix] keeps the keys of several users of one store apart.
//   - [HashedKeys] keeps the keys themselves out of the store.
//   - [ResetCorrupt] resets states that are corrupt.
//   - [Degraded] decides from memory while the store is unavailable.
//   - [Leased] decides hot keys from units that it takes ahead.
//   - [Breaker] stops calling a failing store until it recovers.
//
// A layer sees only the calls that pass through it. From the outside to the inside a sensible order
// is HashedKeys, so that no other layer has keys in memory; Degraded, which decides while the
// breaker is open; Leased; Breaker; ResetCorrupt; Timeout; Prefix.
package layer
