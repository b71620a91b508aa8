// Package denycache caches the refusals of a server. It returns them until their RetryAfter has
// passed or the server reports that one of their states has changed.
//
// The server reports changes of what was read in a transaction with CLIENT CACHING YES (CLIENT
// TRACKING ON OPTIN NOLOOP), and of nothing else, so that admitted demands cost it no more. A
// refusal is therefore followed by a [Recheck]: peeks at the same demands, sent in such a
// transaction, normally while no caller waits. Their results are what is cached.
//
// A recheck creates its entries before it is sent, and fills those that are still there when the
// reply arrives: a change that the server reports meanwhile removes the entry. The server does not
// report changes made by the connection that has read the state, and none after such a change, so
// changes by this client remove entries as well. While a demand that may free units is in flight,
// rechecks of its state create no entries, since other callers may see its effect before its own
// reply arrives.
//
// A recheck is one transaction, since a client that follows a redirection repeats only the last of
// several commands: the script would run untracked. An entry ends with the earliest RetryAfter of
// its demands, counted from when the recheck was sent, so a RetryAfter is never too long. It may be
// older than calls in flight: ignoring it while a take is in flight would leave a hot key without
// its cache. Holds have a key of their own, which a recheck reads as well; refused holds are not
// cached.
//
// An entry stands in two indexes: by its demands, for lookups, and by each of its stored keys, for
// changes. Each index has shards with a mutex each. A goroutine that holds the mutex of a shard by
// demands may lock one by stored key, never the other way round; and it locks a second shard by
// demands only with TryLock, to evict an entry there.
package denycache

import (
	"cmp"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit/backend/internal/batch"
	"github.com/truewindow/ratelimit/backend/lua"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/longkey"
)

const (
	defaultEntries = 1 << 16
	defaultBytes   = 32 << 20
	defaultAge     = 5 * time.Second
)

// A Cache holds refusals. The methods are safe for concurrent use. A nil Cache holds none.
type Cache struct {
	maxAge   time.Duration
	clock    clock
	closed   atomic.Bool
	index    index
	rechecks atomic.Int64 // in flight

	stored, discarded, invalidations, flushes atomic.Int64
}

// CheckOptions returns an error that wraps [driver.ErrInvalid] for options that are out
// of range.
func CheckOptions(opts serverstore.OpenOptions) error {
	wrong := ""
	switch {
	case opts.CacheEntries < 0:
		wrong = fmt.Sprintf("CacheEntries %d", opts.CacheEntries)
	case opts.CacheBytes < 0:
		wrong = fmt.Sprintf("CacheBytes %d", opts.CacheBytes)
	case opts.CacheAge < 0:
		wrong = fmt.Sprintf("CacheAge %v", opts.CacheAge)
	default:
		return nil
	}
	return fmt.Errorf("%w options: %s is negative", driver.ErrInvalid, wrong)
}

// New returns an empty cache.
func New(opts serverstore.OpenOptions) *Cache {
	c := &Cache{
		maxAge: cmp.Or(opts.CacheAge, defaultAge),
		clock:  clock{now: opts.Now, start: time.Now()},
	}
	entries := cmp.Or(opts.CacheEntries, defaultEntries)
	bytes := cmp.Or(opts.CacheBytes, defaultBytes)
	c.index.init(int64(entries), int64(bytes))
	return c
}

// CopyKey returns a key as the cache holds it: a copy, so that no larger string of the caller's is
// held, or the hash of a long key. Demands of a [batch.Group] have such keys. A nil Cache returns
// "".
func (c *Cache) CopyKey(key string) string {
	if c == nil {
		return ""
	}
	return strings.Clone(longkey.Shorten(key))
}

// Lookup sets out to the refusal of ds, decided together, if there is one that still holds, and
// reports whether there is.
func (c *Cache) Lookup(ds []driver.Demand, out []driver.Result) bool {
	if c == nil || c.closed.Load() || !onlyTakes(ds) {
		return false
	}
	ds = longkey.Demands(ds)
	hash := c.index.hash(ds)
	shard := c.index.byDemands(hash)
	shard.mu.RLock()
	e := shard.find(hash, ds)
	shard.mu.RUnlock()
	if e == nil {
		return false
	}
	r := e.refusal.Load()
	if r == nil || r == removed || !r.covers(ds) {
		return false
	}
	elapsed, ok := r.holds(c.clock.read(), c.maxAge)
	if !ok {
		return false
	}
	shard.hits.Add(1)
	r.results(out, elapsed)
	return true
}

func onlyTakes(ds []driver.Demand) bool {
	for i := range ds {
		if ds[i].Op != driver.OpTake {
			return false
		}
	}
	return true
}

// Invalidate removes what is cached of the state under a stored key. It is called when the server
// reports that the state or its holds have changed, which have a key of their own.
func (c *Cache) Invalidate(storedKey string) {
	c.invalidations.Add(1)
	c.index.removeState(storedKey, 0)
	if state, ok := strings.CutSuffix(storedKey, lua.HoldsSuffix); ok {
		c.index.removeState(state, 0)
	}
}

// removeFreed removes the entries of each state whose units g may free. It adds n to the number of
// demands in flight that may free units of that state.
func (c *Cache) removeFreed(g *batch.Group, n int) {
	for i, d := range g.Demands {
		if d.Op == driver.OpReset || d.Op == driver.OpSettle {
			c.index.removeState(g.Keys[i], n)
		}
	}
}

func (c *Cache) removeStates(g *batch.Group) {
	for _, key := range g.Keys {
		c.index.removeState(key, 0)
	}
}

// Flush removes everything. It is called when the server has lost its data or a connection that
// reports changes has broken.
func (c *Cache) Flush() {
	c.flushes.Add(1)
	c.index.removeAll()
}

// Close removes everything for good.
func (c *Cache) Close() {
	if c == nil {
		return
	}
	c.closed.Store(true)
	c.Flush()
}

// Stats returns the statistics.
func (c *Cache) Stats() serverstore.CacheStats {
	if c == nil {
		return serverstore.CacheStats{}
	}
	return serverstore.CacheStats{
		Enabled:       true,
		Hits:          c.index.hits(),
		Stored:        c.stored.Load(),
		Discarded:     c.discarded.Load(),
		Invalidations: c.invalidations.Load(),
		Flushes:       c.flushes.Load(),
		Entries:       c.index.usage.entries.Load(),
		Bytes:         c.index.usage.bytes.Load(),
	}
}
