// Package valkeystore keeps the state of limits on Valkey or Redis, 7.0 or later, through valkey-go. All who use the
// same servers with the same prefix share the limits, whatever their client.
//
//	client, err := valkey.NewClient(valkey.ClientOption{InitAddress: []string{"localhost:6379"}})
//	…
//	store, err := valkeystore.New(client, ratelimit.FailClosed, nil)
//	…
//	limiter, err := ratelimit.New(store, algorithm.SlidingLog(ratelimit.PerMinute(60)))
//
// # What it guarantees
//
// A decision is one script and one round trip, atomic on the server and by the server's clock. A look and a refusal write nothing. Decisions
// of many callers share a few connections.
//
// No demand is recorded twice: the script is never sent again once it may have been received, whatever retries the client is set to. (It follows
// MOVED and ASK, with which a server says that it did not run the script.) ConnLifetime is the exception, see below.
//
// Every call is answered at the context's deadline or after Options.Timeout, whichever is sooner, even when the client hangs.
// The error tells what is known: ratelimit.ErrUnavailable means that nothing was recorded, be it that no server could be reached or that the server
// refused to run the script; ratelimit.ErrOutcomeUnknown, that the script may have been sent and no answer came. The client does not tell when it
// sends, so a call that waits for a connection until its deadline, and one on a closed client, end with the latter too. No error holds a key.
//
// Replication is asynchronous, so a failover can lose the admissions of the last moments; and a server that evicts keys forgets
// what was admitted. Use maxmemory-policy noeviction; [Store.Probe] warns where it is another.
//
// # Refusals that are not asked for twice
//
// [New] asks the server for each decision. [Open] makes a client of its own, and a store that remembers what the server has refused: the same Take is
// refused again without a word to the server, until its RetryAfter is over or the server tells that somebody has changed the state. A flood of
// refused calls then costs no network. No admission is decided so, and what another client resets, gives back or raises is seen as soon as the server's word arrives.
//
//	store, err := valkeystore.Open(valkey.ClientOption{InitAddress: []string{"localhost:6379"}}, ratelimit.FailClosed, nil)
//	…
//	defer store.Close()
//
// Result.Source is ratelimit.SourceCache where a refusal was remembered, and [Store.CacheStats] counts.
//
// # What to set on the client
//
// The client of [New] is the caller's, who also closes it. The store works with the client's defaults; these settings matter:
//
//   - ConnLifetime must be zero. The client sends a command again that was on its way on a connection that reaches its lifetime and
//     breaks before the answer, and then one demand may be recorded twice.
//   - Dialer.KeepAlive and ConnWriteTimeout tell how soon a server that stopped answering is given up: by default after 11s, and on a cluster only
//     then does the client look for the new primary. With 200ms and 500ms it is less than a second.
//   - Dialer.Timeout, 5s by default, bounds the making of a connection, in which the decisions on it wait. 500ms is better. Sentinels have a
//     Dialer of their own, Sentinel.Dialer.
//   - DisableCache spares servers the tracking of clients, where nothing else uses the client's cache.
//   - DisableRetry and RetryDelay do not apply to decisions, and SendToReplicas must not choose a replica for them.
//
// # What a user may have to be granted
//
// On keys that begin with the prefix, here the default one, a user on the server needs:
//
//	~rl:* +evalsha +eval +time +getrange +set +setrange +pexpireat +pexpire +del
//
// On a cluster +cluster|slots and +cluster|shards as well. [Open] wants +client|tracking, and makes a store that caches nothing where it is not granted; the
// client of [New] needs it too unless DisableCache is set. With +info [Store.Probe] can tell the server's version and its eviction policy.
package valkeystore
