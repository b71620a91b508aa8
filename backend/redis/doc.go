// Package redisstore keeps the state of limits on Redis or Valkey, 7.0 or later, through go-redis.
// All processes that use the same servers with the same prefix share the limits.
//
//	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
//	store, err := redisstore.New(client, nil)
//	…
//	limiter, err := ratelimit.New(store, algorithm.SlidingLog(ratelimit.PerMinute("login", 60)))
//
// Package serverstore has the options and statistics of the store.
//
// # What it guarantees
//
// A decision is one script and one round trip, atomic on the server and by the server's clock. A
// peek and a refusal write nothing.
//
// No demand is recorded twice: the store never sends the script again once it may have been
// received, whatever retries the client is set to. (It follows MOVED and ASK, with which a server
// says that it did not run the script.)
//
// Every call returns at the context's deadline or after Options.Timeout, whichever is sooner, even
// when the client hangs. The error says what is known: [ratelimit.ErrUnavailable] means that
// nothing was recorded, because nothing was sent or the server refused to run the script;
// [ratelimit.ErrOutcomeUnknown], that the script was sent and no answer came. No error holds a key.
//
// Replication is asynchronous, so a failover can lose the admissions of the last moments, and a
// server that evicts keys forgets what was admitted. Use maxmemory-policy noeviction; [Store.Probe]
// warns about any other.
//
// # What to set on the client
//
// The caller owns the client and closes it. The store works with go-redis's defaults; these
// settings matter:
//
//   - PoolSize bounds the decisions under way at once. It should not be much below the number of
//     goroutines that decide at the same time.
//   - PipelinePoolSize bounds the pipelines under way at once to a server of a cluster, on
//     connections of their own. The default of 10 is enough.
//   - DialTimeout, DialerRetries, ReadTimeout and WriteTimeout bound how long a connection is held
//     that does not answer, not how long a caller waits. With the default of 5 DialerRetries a
//     refused connection becomes an error only after half a second, so the caller gets the error of
//     a deadline and not that of the refusal; 1 is better. Behind Sentinels a DialTimeout of 500ms
//     lets the client reach the new primary sooner after a failover: with the default of 5s, dials
//     to the lost primary make others wait.
//   - ContextTimeoutEnabled makes the client close the connections of abandoned requests. Without
//     it they go on waiting for their answer and are used again, which is better where a server is
//     slow but alive.
//   - MaxRetries does not apply to decisions.
//
// A client for a cluster must be a *redis.ClusterClient. A *redis.Ring is refused unless it has one
// shard: it moves keys to another shard when one fails, and the history of those keys is lost.
//
// # What a user has to be granted
//
// On keys that begin with the prefix, here the default one, a user on the server needs:
//
//	~rl:* +evalsha +eval +time +getrange +strlen +set +setrange +pexpireat +pexpire +del
//
// On a cluster it needs +cluster|slots as well. With +info [Store.Probe] can report the server's
// version and its eviction policy.
package redisstore
