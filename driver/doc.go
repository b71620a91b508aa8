// Package driver has what stores, algorithms and limiters have in common: it is the contract for
// their authors. To limit something, use package [github.com/truewindow/ratelimit], which has its
// own names for what users need.
//
//   - A demand is one (key, algorithm, n) to be decided. It is admitted or refused.
//   - A state, or history, is what a store keeps of the past admissions of a key. The key, the name
//     of the limit and the name of the algorithm identify it.
//   - A stamp is an instant on the store's clock, in microseconds since the Unix epoch.
//   - A record is what a state keeps of the admissions with one stamp.
//
// Authors of stores begin at [Store], authors of algorithms at [Algorithm]. Package conformance
// tests that both keep the contract.
package driver
