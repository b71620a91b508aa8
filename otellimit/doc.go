// Package otellimit counts and times decisions with OpenTelemetry: it is an observer of limiters,
// and reads the statistics of stores and layers. It needs the API of OpenTelemetry only; a program
// chooses the SDK and where metrics go.
//
//	metrics, err := otellimit.New(provider)
//	…
//	limiter = limiter.WithObserver(metrics.Observe)
//	metrics.Watch("main", func() any { return store.Stats() })
//
// # Metrics
//
// No metric and no span has a key, because keys are user data. Attributes are the names of the
// first 1,000 limits, the names of watched stores, and words from fixed lists. The SDK has a bound
// of its own: beyond 2,000 sets of attributes of one metric, it merges the others into a set
// with otel.metric.overflow. A limit has a set for each op, outcome and source that occurs, so a
// program with hundreds of limits needs a higher bound (sdkmetric.WithCardinalityLimit).
//
//	metric                              unit         what
//	ratelimit.decisions                 {decision}   decisions, one for each limit of a call
//	ratelimit.decision.duration         s            histogram of how long each call took
//	ratelimit.decision.waited           s            histogram of how long calls of Wait waited
//	ratelimit.units                     {unit}       units that were asked for, as decisions
//	ratelimit.near_limit                {decision}   takes admitted with at most 20 % remaining
//	ratelimit.errors                    {error}      calls that failed
//	ratelimit.shadow.decisions          {decision}   decisions of shadows, one for each limit
//	ratelimit.limit.max                 {unit}       Max of a limit that has decided
//	ratelimit.limit.window              s            its Window
//	ratelimit.store.keys                {key}        states that a store in memory holds
//	ratelimit.store.keys.max            {key}        the most that it may hold
//	ratelimit.store.overflow.keys       {key}        its overflow states
//	ratelimit.store.overflow.decisions  {decision}   demands decided on an overflow state
//	ratelimit.store.refusals            {call}       calls that failed for want of room
//	ratelimit.store.queued              {call}       slots for calls that are not sent yet
//	ratelimit.store.queued.max          {call}       the most of them
//	ratelimit.store.abandoned           {request}    requests that no caller waits for
//	ratelimit.store.abandoned.max       {request}    from here on no request is sent
//	ratelimit.cache.enabled             {cache}      1 if refusals are cached, else 0
//	ratelimit.cache.entries             {refusal}    cached refusals
//	ratelimit.cache.size                By           their memory, about
//	ratelimit.cache.hits                {refusal}    refusals that came from the cache
//	ratelimit.cache.stored              {refusal}    refusals that were cached
//	ratelimit.cache.discarded           {refusal}    refusals that changed before they were cached
//	ratelimit.cache.invalidations       {state}      states that the server reported as changed
//	ratelimit.cache.flushes             {flush}      times when the cache was emptied
//	ratelimit.local.active              {store}      1 while a Degraded store decides, else 0
//	ratelimit.local.decisions           {call}       calls decided locally
//	ratelimit.local.undecided           {call}       calls that it could not decide either
//	ratelimit.local.pending             {state}      states with units that are not recorded yet
//	ratelimit.local.recorded            {unit}       units recorded in the store later
//	ratelimit.local.unconfirmed         {unit}       those of them whose answer never came
//	ratelimit.local.keys                {key}        states tracked locally
//	ratelimit.local.untracked           {admission}  admissions that found no room to be tracked
//	ratelimit.breaker.state             {breaker}    1 for the state that a breaker has, else 0
//	ratelimit.breaker.opened            {change}     times when it opened
//	ratelimit.breaker.refusals          {call}       calls that it refused while open
//	ratelimit.breaker.failures          {call}       calls that failed
//
// The attributes of decisions, units and durations:
//
//	ratelimit.limit    the name of the limit; of durations that of the limit that binds
//	ratelimit.op       take, peek, force, giveback or reset
//	ratelimit.outcome  admitted; refused; refused_by_other, if this limit admits and another limit
//	                   or claim of the call refuses; or error. An operation that admits nothing,
//	                   such as reset, is admitted if it succeeds
//	ratelimit.source   store, cache, local or open; none with an error
//
// Errors have ratelimit.op and error.type: canceled, deadline_exceeded, queue_full, exceeds_limit,
// invalid, outcome_unknown, capacity, corrupt_state, closed, denied, unavailable or other.
// Decisions of shadows have ratelimit.live, the outcome that the caller got, instead of
// ratelimit.source. The metrics of stores, caches, local decisions and breakers have
// ratelimit.store, the name that Watch got; ratelimit.breaker.state has ratelimit.state besides:
// closed, half-open or open.
//
// A reservation is a take, a commit gives back or forces what differs, and a cancel gives back: the
// operations are counted as such. How many reservations or calls in flight are outstanding is not
// counted: they may be settled by another process, or end with their window.
//
// # Spans
//
// Observe sets ratelimit.limit, ratelimit.outcome and ratelimit.source on the current span, if that
// is recording. A later call in the same span overwrites them.
package otellimit
