// Package redisstore keeps the state of limits on Redis or Valkey, 7.0 or later, through go-redis.
// All processes that use the same servers with the same prefix share the limits.
//
//	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
//	store, err := redisstore.New(client, nil)
//	…
//	limiter, err := ratelimit.New(store, algorithm.SlidingLog(ratelimit.PerMinute("login", 60)))
//
// Package [serverstore] has the options, the statistics and the URLs of the store.
//
// # What it guarantees
//
// A decision is one script and one round trip (two if the server does not have the script yet),
// atomic on the server and by the server's clock. A peek and a refusal write nothing.
//
// No demand is recorded twice: the store never sends the script again once it may have been
// received, whatever the client's settings for retries. (It follows MOVED and ASK, by which a
// server reports that it did not run the script.)
//
// Every call returns at the context's deadline or after [serverstore.Options].Timeout, whichever is
// sooner, even when the client hangs. The error says what is known: [driver.ErrUnavailable]
// alone means that nothing was recorded, because nothing was sent or the server refused to run the
// script; [driver.ErrOutcomeUnknown], that the script may have been sent and its outcome is not
// known. No error contains a key.
//
// Replication is asynchronous, so a failover can lose the admissions of the last moments, and a
// server that evicts keys loses admissions too. Use maxmemory-policy noeviction; [Store.Probe]
// warns about any other.
//
// # What to set on the client
//
// The caller owns the client and closes it. The store works with go-redis's defaults; these
// settings matter:
//
//   - PoolSize bounds the requests in flight. The default is enough: a server gets two at a time,
//     and those that have timed out hold their connections until they end. With Options.NoBatching
//     it should not be much below the number of goroutines that decide at the same time.
//   - PipelinePoolSize is the same for pipelines to a server of a cluster, which have their own
//     connections. The default of 10 is enough.
//   - DialTimeout, DialerRetries, ReadTimeout and WriteTimeout bound how long the client holds a
//     connection that does not answer, not how long a caller waits. With the default of 5
//     DialerRetries a refused connection is an error only after half a second, when the caller has
//     already returned with a deadline error; 1 is better. With Sentinels, a DialTimeout of 500ms
//     lets the client reach the new primary sooner after a failover: with the default of 5s, dials
//     to the lost primary make others wait.
//   - ContextTimeoutEnabled makes the client close the connections of abandoned requests. Without
//     it the connections wait for the answer and are used again, which is better if a server is
//     only slow.
//   - MaxRetries does not apply to decisions.
//   - ClientSideCacheConfig and ClientSideCache do not apply to decisions, which all come from the
//     server. With a cache the client's connections track the keys of decisions too, and the server
//     tells them each change of these keys. A client without a cache, for the store, saves that.
//
// A client for a cluster must be a *redis.ClusterClient. A type that wraps a client embeds the
// *redis.Client, *redis.ClusterClient or *redis.Ring, not a redis.UniversalClient. A *redis.Ring is
// refused unless it has one shard: it moves keys to another shard when one fails, and the history
// of those keys is lost.
//
// # Rights of the user
//
// The client's user needs these rights on the server, here with the default prefix, as rules of ACL
// SETUSER:
//
//	~rl:* +evalsha +eval +time +getrange +strlen +set +setrange +pexpireat +pexpire +del
//	+hget +hset +hdel +hscan
//
// On a cluster it also needs +cluster|slots. With +info [Store.Probe] can report the server's
// version and its eviction policy.
package redisstore
