// Package redisstore keeps the state of limits on Redis or Valkey, 7.0 or later, through go-redis. All who use the
// same servers with the same prefix share the limits.
//
//	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
//	store, err := redisstore.New(client, ratelimit.FailClosed, nil)
//	…
//	limiter, err := ratelimit.New(store, algorithm.SlidingLog(ratelimit.PerMinute(60)))
//
// # What it guarantees
//
// A decision is one script and one round trip, atomic on the server and by the server's clock. A look and a refusal write nothing.
//
// No demand is recorded twice: the script is never sent again once it may have been received, whatever retries the client is set to. (It follows
// MOVED and ASK, with which a server says that it did not run the script.)
//
// Every call is answered at the context's deadline or after Options.Timeout, whichever is sooner, even when the client hangs.
// The error tells what is known: ratelimit.ErrUnavailable means that nothing was recorded, be it that nothing was sent or that the server
// refused to run the script; ratelimit.ErrOutcomeUnknown, that the script was sent and no answer came. No error holds a key.
//
// Replication is asynchronous, so a failover can lose the admissions of the last moments; and a server that evicts keys forgets
// what was admitted. Use maxmemory-policy noeviction; [Store.Probe] warns where it is another.
//
// # What to set on the client
//
// The client is the caller's, who also closes it. The store works with go-redis's defaults; these settings matter:
//
//   - PoolSize bounds the decisions under way at once. It should not be much below the number of goroutines that decide at the same time.
//   - PipelinePoolSize bounds the pipelines under way at once to a server of a cluster, on connections of their own. The default of 10 is enough.
//   - DialTimeout, DialerRetries, ReadTimeout and WriteTimeout tell how long a connection is held that does not answer, not how long a
//     caller waits. With the default of 5 DialerRetries a refused connection becomes an error only after half a second, so the caller is told
//     of a deadline and not of the refusal; 1 is better. Behind Sentinels a DialTimeout of 500ms lets the client reach the new primary sooner after a failover:
//     with the default of 5s, connections in the making to the lost one keep others waiting.
//   - ContextTimeoutEnabled makes the client close the connections of calls that were given up. Without it they go on waiting for their
//     answer and are used again, which is better where a server is slow and not gone.
//   - MaxRetries does not apply to decisions.
//
// A client for a cluster must be a *redis.ClusterClient. A *redis.Ring is refused unless it has one shard, since it moves keys to another
// when one fails, and so forgets.
//
// # What a user may have to be granted
//
// On keys that begin with the prefix, here the default one, a user on the server needs:
//
//	~rl:* +evalsha +eval +time +getrange +set +setrange +pexpireat +pexpire +del
//
// On a cluster +cluster|slots as well. With +info [Store.Probe] can tell the server's version and its eviction policy.
package redisstore
