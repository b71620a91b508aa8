// Package otellimit records the decisions of limiters as metrics of OpenTelemetry. It is an
// observer of limiters, and also reads the statistics of stores and layers. It needs only the API
// of OpenTelemetry; the program chooses the SDK and the exporter.
//
//	metrics, err := otellimit.New(provider)
//	…
//	limiter = limiter.WithObserver(metrics.Observe)
//	metrics.Watch("main", func() any { return store.Stats() })
//
// # Metrics
//
// No metric and no span has a key, because keys are user data. Attributes are the names of the
// first 20,000 limits, the names of watched stores, and words from fixed lists. All further limits
// have the name "_other". The SDK has a bound of its own: it keeps 2,000 sets of attributes for
// each metric, and merges the others into one set with otel.metric.overflow. A limit has one set
// for each op, outcome and source that occurs, so a program with hundreds of limits needs
// sdkmetric.WithCardinalityLimit(0).
//
//	metric                              unit         what
//	ratelimit.decisions                 {decision}   decisions, one for each limit of a call
//	ratelimit.decision.duration         s            histogram of how long each call took
//	ratelimit.decision.waited           s            histogram of how long calls of Wait waited
//	ratelimit.units                     {unit}       units requested, for each limit of a call
//	ratelimit.near_limit                {decision}   takes and holds with at most 20 % left
//	ratelimit.errors                    {error}      calls that failed
//	ratelimit.holds.open                {hold}       holds that this process has to settle
//	ratelimit.holds.renewed             {hold}       renewals of holds
//	ratelimit.holds.late                {hold}       renewals and settlements after the time-out
//	ratelimit.holds.lost                {hold}       open holds that were not settled
//	ratelimit.shadow.decisions          {decision}   decisions of shadows, one for each limit
//	ratelimit.shadow.dropped            {decision}   decisions that shadows did not make
//	ratelimit.limit.max                 {unit}       Max of each limit that has decided
//	ratelimit.limit.window              s            Window of each limit that has decided
//	ratelimit.store.keys                {key}        states in a memory store
//	ratelimit.store.keys.max            {key}        the most states that it may hold
//	ratelimit.store.refusals            {call}       calls that failed at once: no room
//	ratelimit.store.queued              {call}       queue slots for calls that are not sent yet
//	ratelimit.store.queued.max          {call}       the most such slots; then calls fail
//	ratelimit.store.abandoned           {request}    requests that no caller waits for
//	ratelimit.store.abandoned.max       {request}    at this number no more requests are sent
//	ratelimit.cache.enabled             {cache}      1 if refusals are cached, else 0
//	ratelimit.cache.entries             {refusal}    cached refusals
//	ratelimit.cache.size                By           approximate memory of the cached refusals
//	ratelimit.cache.hits                {refusal}    refusals that the cache answered
//	ratelimit.cache.stored              {refusal}    refusals that were added to the cache
//	ratelimit.cache.discarded           {refusal}    refusals not cached because the state changed
//	ratelimit.cache.invalidations       {state}      states that the server reported as changed
//	ratelimit.cache.flushes             {flush}      times that the cache was emptied
//	ratelimit.local.active              {store}      1 while calls are decided locally, else 0
//	ratelimit.local.decisions           {call}       calls decided locally
//	ratelimit.local.undecided           {call}       calls that could not be decided locally
//	ratelimit.local.pending             {state}      states with units not yet in the store
//	ratelimit.local.recorded            {unit}       local units that were recorded in the store
//	ratelimit.local.unconfirmed         {unit}       local units sent to the store, answer lost
//	ratelimit.local.holds               {hold}       holds that the store is still to be told of
//	ratelimit.local.lost                {hold}       holds that it did not have any more then
//	ratelimit.local.keys                {key}        states tracked locally
//	ratelimit.local.untracked           {admission}  admissions not tracked for lack of room
//	ratelimit.lease.keys                {key}        states that may have leases
//	ratelimit.lease.admitted            {call}       calls admitted from leases
//	ratelimit.lease.refused             {call}       calls refused from memory
//	ratelimit.lease.calls               {call}       calls of the store about such states
//	ratelimit.lease.units.taken         {unit}       units taken ahead of their use
//	ratelimit.lease.units.lost          {unit}       units taken ahead and never used
//	ratelimit.breaker.state             {breaker}    1 for the current state, 0 for the others
//	ratelimit.breaker.opened            {change}     times that a breaker opened
//	ratelimit.breaker.refusals          {call}       calls that an open breaker refused
//	ratelimit.breaker.failures          {call}       failed calls and failed peeks
//
// The attributes of decisions, units and durations:
//
//	ratelimit.limit    the name of the limit; durations have none
//	ratelimit.op       take, peek, force, reset, hold, renew or settle
//	ratelimit.outcome  admitted; refused; refused_by_other, if this limit admits and another limit
//	                   or claim of the call refuses; or error. An operation that is never
//	                   refused, such as reset, counts as admitted if it succeeds
//	ratelimit.source   store, cache, local, open or lease; absent with an error, and of units
//
// Errors have ratelimit.op and error.type: canceled, deadline_exceeded, queue_full, exceeds_limit,
// invalid, outcome_unknown, capacity, contended, corrupt_state, closed, denied, unavailable or
// other. The deadline is the caller's: a timeout of the store is unavailable, contended or
// outcome_unknown. Decisions of shadows have ratelimit.live, the outcome that the caller got,
// instead of ratelimit.source. The metrics of stores, caches, local decisions and breakers have
// ratelimit.store, the name that Watch got. The metric ratelimit.breaker.state also has
// ratelimit.state: closed, half-open or open.
//
// What reserves or extends is a hold, also under the limits of a reservation that take at once;
// commits and cancels are settles. An extension holds all units.
//
// The metrics of holds have ratelimit.limit. A reservation has one hold for each of its limits with
// holds. A token leaves ratelimit.holds.open, and what is resumed enters it with its first renewal
// or extension; see Open of [ratelimit.Observation] for what is late and lost.
//
// # Spans
//
// Observe sets ratelimit.limit, ratelimit.outcome and ratelimit.source on the current span, if it
// is recording. A later call in the same span overwrites them. Observe starts no span.
package otellimit
