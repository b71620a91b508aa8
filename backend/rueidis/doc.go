// Package rueidisstore keeps states on Redis or Valkey, 7.0 or later, through rueidis. All
// processes that use the same servers with the same prefix share the limits, whatever their client.
//
//	option := rueidis.ClientOption{InitAddress: []string{"localhost:6379"}}
//	client, err := rueidis.NewClient(option)
//	…
//	store, err := rueidisstore.New(client, nil)
//	…
//	limiter, err := ratelimit.New(store, algorithm.SlidingLog(ratelimit.PerMinute("login", 60)))
//
// Package [serverstore] has the options, the statistics and the URLs of the store.
//
// # What it guarantees
//
// A decision is one script and one round trip (two if the server does not have the script yet),
// atomic on the server and by the server's clock. A peek and a refusal write nothing. Decisions of
// many callers share a few connections.
//
// No demand is recorded twice: the store never sends the script again once it may have been
// received, whatever the client's settings for retries. (It follows MOVED and ASK, by which a
// server reports that it did not run the script.) ConnLifetime is the exception; see below.
//
// Every call returns at the context's deadline or after [serverstore.Options].Timeout, whichever is
// sooner, even when the client hangs. The error says what is known: [driver.ErrUnavailable]
// alone means that nothing was recorded, because no server could be reached or the server refused
// to run the script; [driver.ErrOutcomeUnknown], that the script may have been sent and its
// outcome is not known. The client does not report when it sends, so a call that waits for a
// connection until its deadline, and one on a closed client, end with the latter too. No error
// contains a key.
//
// Replication is asynchronous, so a failover can lose the admissions of the last moments, and a
// server that evicts keys loses admissions too. Use maxmemory-policy noeviction; [Store.Probe]
// warns about any other.
//
// # Cached refusals
//
// A store of [New] sends each decision to the server. [Open] creates a client of its own and a
// store that caches refusals: it refuses again what the server has refused, a take or the takes of
// one TakeAll, without a request, until a RetryAfter has passed or the server reports that a state
// has changed. A flood of refused calls then costs no network. The cache admits nothing, and what
// another client resets or settles takes effect as soon as the server's notification arrives.
//
// The server tracks only what is cached: after a refusal whose RetryAfter is at least four round
// trips the store peeks at the same demands, in the background and in a transaction with CLIENT
// CACHING YES. Demands that are admitted cost the server no more than with [New].
//
//	store, err := rueidisstore.Open(option, nil)
//	…
//	defer store.Close()
//
// Result.Source is [driver.SourceCache] for a refusal from the cache, and Cache of [Store.Stats]
// counts them.
//
// # What to set on the client
//
// The caller of [New] owns the client and closes it. The store works with the client's defaults;
// these settings matter:
//
//   - ConnLifetime must be zero. When a connection reaches its lifetime and breaks before an
//     answer, the client sends the command again, and then one demand may be recorded twice.
//   - Dialer.KeepAlive and ConnWriteTimeout set when the client gives up on a server that has
//     stopped answering; on a cluster it looks for the new primary only then. The defaults take
//     11s; 200ms and 500ms take less than a second.
//   - Dialer.Timeout, 5s by default, bounds a dial. Decisions on that connection wait for it, so
//     500ms is better. Sentinels have their own Dialer, Sentinel.Dialer.
//   - Sentinel.TopologyRefreshInterval, off by default, has to be set behind Sentinels, to 5s for
//     example: a client that misses the event of a failover otherwise stays at the old primary.
//   - DisableCache saves servers the tracking of keys, if nothing else uses the client's cache.
//   - DisableRetry and RetryDelay do not apply to decisions, and SendToReplicas must not choose a
//     replica for them.
//
// # Rights of the user
//
// The client's user needs these rights on the server, here with the default prefix, as rules of ACL
// SETUSER:
//
//	~rl:* +evalsha +eval +time +getrange +strlen +set +setrange +pexpireat +pexpire +del
//	+hget +hset +hdel +hscan
//
// On a cluster it also needs +cluster|slots and +cluster|shards. With +info [Store.Probe] can
// report the server's version and its eviction policy.
//
// The store of [Open] caches refusals only if the user also has
//
//	+client|tracking +client|caching +multi +exec +eval_ro +evalsha_ro
//
// The client of [New] needs +client|tracking unless DisableCache is set.
package rueidisstore
