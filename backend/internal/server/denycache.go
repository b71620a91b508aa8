package server

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit"
)

// A DenyCache keeps refusals that the server has given, and gives them again until they may have become false: until the time to retry has
// come, or the server tells that the state has changed, which it does for every client that has read it (CLIENT TRACKING ON OPTOUT NOLOOP).
//
// A demand has a place in the cache before it is sent, and its refusal is kept only if the place is still there when the answer comes: a change
// that the server tells of meanwhile has taken it away. What this client changes itself the server does not tell, so that takes the place
// away as well; and while a demand is on its way that may free units nobody gets a place, since others may see what it did before its own answer comes.
//
// The methods are safe for concurrent use. A nil DenyCache keeps nothing.
type DenyCache struct {
	opts  CacheOptions
	now   func() int64 // µs; the clock of RetryAfter
	base  time.Time
	seed  maphash.Seed
	off   atomic.Bool
	stats struct{ stored, poisoned, pushes, flushes, entries, bytes atomic.Int64 }

	places [cacheShards]placeShard // by demand
	states [cacheShards]stateShard // by stored key
}

// CacheOptions bound a DenyCache. Zero fields are the defaults.
type CacheOptions struct {
	MaxEntries int
	MaxBytes   int
	MaxAge     time.Duration
}

// CacheStats are what the stores' packages document as theirs.
type CacheStats struct {
	Enabled  bool
	Refusals int64
	Stored   int64
	Poisoned int64
	Pushes   int64
	Flushes  int64
	Entries  int64
	Bytes    int64
}

const (
	cacheShards       = 64
	defaultMaxEntries = 1 << 16
	defaultMaxBytes   = 32 << 20
	defaultMaxAge     = 5 * time.Second

	placeBytes = 400 // of a place with its refusal and its share of both maps, beside its keys
)

type placeShard struct {
	mu       sync.RWMutex
	places   map[question]*place
	refusals atomic.Int64 // given from here
	_        [64]byte     // shards do not share a cache line
}

type stateShard struct {
	mu      sync.Mutex
	places  map[string][]*place
	freeing map[string]int // demands under way that may free units
}

// question is what must be the same in two Takes for a refusal to answer both, beside the number of units.
type question struct {
	key       string
	algorithm ratelimit.Algorithm
}

// place is where the refusal of a question is kept.
type place struct {
	question
	stored  string
	refusal atomic.Pointer[refusal] // nil: none yet
	calls   int                     // under way that may bring one; guarded by the mutex of its shard
}

// refusal is what a server has said. It is never changed.
type refusal struct {
	n       int64
	sent    int64         // on the clock of RetryAfter, no later than the server's decision
	since   time.Duration // the same instant, since base
	result  ratelimit.Result
	invalid bool
}

// dropped is in the place of a refusal that must not be given any more, nor one that was asked for before.
var dropped = &refusal{invalid: true}

// NewDenyCache returns an empty cache. now is the clock of a store that does not use its server's, or nil.
func NewDenyCache(opts CacheOptions, now func() int64) *DenyCache {
	if opts.MaxEntries == 0 {
		opts.MaxEntries = defaultMaxEntries
	}
	if opts.MaxBytes == 0 {
		opts.MaxBytes = defaultMaxBytes
	}
	if opts.MaxAge == 0 {
		opts.MaxAge = defaultMaxAge
	}
	c := &DenyCache{opts: opts, now: now, base: time.Now(), seed: maphash.MakeSeed()}
	for i := range c.places {
		c.places[i].places = make(map[question]*place)
		c.states[i].places = make(map[string][]*place)
		c.states[i].freeing = make(map[string]int)
	}
	return c
}

// clock reads the clock of RetryAfter, and the time that has passed, which are the same but in tests.
func (c *DenyCache) clock() (now int64, since time.Duration) {
	since = time.Since(c.base)
	if c.now != nil {
		return c.now(), since
	}
	return since.Microseconds(), since
}

func (c *DenyCache) placeShard(key string) *placeShard {
	return &c.places[maphash.String(c.seed, key)%cacheShards]
}

func (c *DenyCache) stateShard(stored string) *stateShard {
	return &c.states[maphash.String(c.seed, stored)%cacheShards]
}

// Lookup returns the refusal of d, if there is one that holds.
func (c *DenyCache) Lookup(d ratelimit.Demand) (res ratelimit.Result, ok bool) {
	if c == nil || d.Op != ratelimit.Take || c.off.Load() {
		return res, false
	}
	shard := c.placeShard(d.Key)
	shard.mu.RLock()
	p := shard.places[question{d.Key, d.Algorithm}]
	shard.mu.RUnlock()
	if p == nil {
		return res, false
	}
	r := p.refusal.Load()
	if r == nil || d.N < r.n || r.invalid {
		return res, false
	}
	now, since := c.clock()
	// A clock that is behind the refusal has stepped back, after which the server may decide otherwise.
	elapsed := time.Duration(now-r.sent) * time.Microsecond
	if elapsed < 0 || elapsed >= r.result.RetryAfter || since-r.since >= c.opts.MaxAge {
		return res, false
	}
	shard.refusals.Add(1)
	res = r.result
	res.Source = ratelimit.SourceCache
	res.RetryAfter -= elapsed
	res.ResetAfter = max(0, res.ResetAfter-elapsed)
	return res, true
}

// departure is when a call was sent.
type departure struct {
	at    int64
	since time.Duration
}

// depart takes places for the demands in groups, before they are sent.
func (c *DenyCache) depart(groups []Group) (sent departure) {
	if c == nil {
		return sent
	}
	for i := range groups {
		g := &groups[i]
		g.place = nil
		if d := g.Demands[0]; len(g.Demands) == 1 && d.Op == ratelimit.Take {
			g.place = c.take(g.Keys[0], d)
		}
		c.freed(g, +1)
	}
	sent.at, sent.since = c.clock()
	return sent
}

// arrive keeps what the server has refused, and drops what it has changed. wrote tells of a look or a refused
// group whether the server wrote nevertheless.
func (c *DenyCache) arrive(groups []Group, sent departure, wrote func(group int) bool) {
	if c == nil {
		return
	}
	trip := time.Since(c.base) - sent.since
	for i := range groups {
		g := &groups[i]
		c.freed(g, -1)
		if g.changed() || wrote(i) {
			for _, key := range g.Keys {
				c.drop(key, 0)
			}
		}
	}
	for i := range groups {
		g := &groups[i]
		if g.place == nil {
			continue
		}
		var r *refusal
		if res := g.Results[0]; g.Err == nil && !res.Allowed && res.RetryAfter >= 2*trip {
			r = &refusal{n: g.Demands[0].N, sent: sent.at, since: sent.since, result: res}
		}
		c.leave(g.place, r)
		g.place = nil
	}
}

// lose drops all that a call without an answer may have changed.
func (c *DenyCache) lose(groups []Group) {
	if c == nil {
		return
	}
	for i := range groups {
		g := &groups[i]
		c.freed(g, -1)
		for _, key := range g.Keys {
			c.drop(key, 0)
		}
		if g.place != nil {
			c.leave(g.place, nil)
			g.place = nil
		}
	}
}

// freed drops what demands of g may free, and counts them.
func (c *DenyCache) freed(g *Group, n int) {
	for i, d := range g.Demands {
		if d.Op == ratelimit.GiveBack || d.Op == ratelimit.Reset {
			c.drop(g.Keys[i], n)
		}
	}
}

// changed tells that the states of g may not be as they were before it.
func (g *Group) changed() bool {
	if g.Err != nil {
		return true
	}
	if len(g.Demands) == 1 {
		switch g.Demands[0].Op {
		case ratelimit.Take:
			for i := range g.Results {
				if g.Results[i].Allowed {
					return true
				}
			}
			return false
		case ratelimit.Look:
			return false
		}
		return true
	}
	for i := range g.Results {
		if !g.Results[i].Allowed {
			return false
		}
	}
	return true
}

// take returns the place of d for one more call, or nil if there is no room.
func (c *DenyCache) take(stored string, d ratelimit.Demand) *place {
	q := question{d.Key, d.Algorithm}
	shard := c.placeShard(d.Key)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if p := shard.places[q]; p != nil && p.refusal.Load() != dropped {
		p.calls++
		return p
	}
	if before := shard.places[q]; before != nil { // dropped
		delete(shard.places, q)
		c.count(before, -1)
	}
	p := &place{question: q, stored: stored, calls: 1}
	if c.off.Load() || !c.room(shard, p) {
		return nil
	}
	shard.places[q] = p
	states := c.stateShard(stored)
	states.mu.Lock()
	freeing := states.freeing[stored] > 0
	states.places[stored] = append(states.places[stored], p)
	states.mu.Unlock()
	if freeing || c.off.Load() { // Close may have looked before p was there
		c.remove(shard, p)
		return nil
	}
	return p
}

func (c *DenyCache) count(p *place, n int64) {
	c.stats.entries.Add(n)
	c.stats.bytes.Add(n * p.size())
}

func (p *place) size() int64 { return int64(placeBytes + len(p.key) + len(p.stored)) }

// room makes room for p and counts it in, if it can. The caller holds the mutex of shard.
func (c *DenyCache) room(shard *placeShard, p *place) bool {
	if c.book(p) {
		return true
	}
	if p.size() > int64(c.opts.MaxBytes) {
		return false // nor would it fit if all others went
	}
	evict := func(shard *placeShard) bool {
		for _, old := range shard.places { // in random order: nobody chooses what goes
			if old.calls > 0 {
				continue
			}
			c.remove(shard, old)
			if c.book(p) {
				return true
			}
		}
		return false
	}
	if evict(shard) {
		return true
	}
	for i := range c.places {
		other := &c.places[i]
		if other == shard || !other.mu.TryLock() {
			continue
		}
		booked := evict(other)
		other.mu.Unlock()
		if booked {
			return true
		}
	}
	return false
}

// book counts p in, unless that is more than a bound: at no moment do the counts exceed them.
func (c *DenyCache) book(p *place) bool {
	if !addWithin(&c.stats.entries, 1, int64(c.opts.MaxEntries)) {
		return false
	}
	if !addWithin(&c.stats.bytes, p.size(), int64(c.opts.MaxBytes)) {
		c.stats.entries.Add(-1)
		return false
	}
	return true
}

func addWithin(sum *atomic.Int64, n, bound int64) bool {
	for {
		old := sum.Load()
		if old+n > bound {
			return false
		}
		if sum.CompareAndSwap(old, old+n) {
			return true
		}
	}
}

// remove takes p out of both maps. The caller holds the mutex of its shard.
func (c *DenyCache) remove(shard *placeShard, p *place) {
	p.refusal.Store(dropped)
	if shard.places[p.question] == p {
		delete(shard.places, p.question)
		c.count(p, -1)
	}
	states := c.stateShard(p.stored)
	states.mu.Lock()
	defer states.mu.Unlock()
	places := states.places[p.stored]
	for i := range places {
		if places[i] == p {
			places[i] = places[len(places)-1]
			places[len(places)-1] = nil
			places = places[:len(places)-1]
			break
		}
	}
	if len(places) == 0 {
		delete(states.places, p.stored)
	} else {
		states.places[p.stored] = places
	}
}

// leave ends a call that has p, with its refusal if it brings one.
func (c *DenyCache) leave(p *place, r *refusal) {
	for r != nil {
		old := p.refusal.Load()
		if old == dropped {
			c.stats.poisoned.Add(1)
			break
		}
		if old != nil && old.n < r.n && old.outlasts(r, c.opts.MaxAge) {
			break
		}
		if p.refusal.CompareAndSwap(old, r) {
			c.stats.stored.Add(1)
			break
		}
	}
	shard := c.placeShard(p.key)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if p.calls--; p.calls == 0 && p.refusal.Load() == nil {
		c.remove(shard, p)
	}
}

// outlasts tells that r may be given at the time at which newer was asked for, so that it is as good for more.
func (r *refusal) outlasts(newer *refusal, maxAge time.Duration) bool {
	return newer.since-r.since < maxAge && newer.sent >= r.sent && newer.sent < r.sent+r.result.RetryAfter.Microseconds()
}

// Invalidate drops what is known of the state under a stored key, as the server has told.
func (c *DenyCache) Invalidate(stored string) {
	c.stats.pushes.Add(1)
	c.drop(stored, 0)
}

// drop drops what is known of a state, and adds to the number of demands under way that may free units of it.
func (c *DenyCache) drop(stored string, freeing int) {
	states := c.stateShard(stored)
	states.mu.Lock()
	if freeing != 0 {
		if states.freeing[stored] += freeing; states.freeing[stored] == 0 {
			delete(states.freeing, stored)
		}
	}
	places := states.places[stored]
	delete(states.places, stored)
	for _, p := range places {
		p.refusal.Store(dropped)
	}
	states.mu.Unlock()
	for _, p := range places {
		c.forget(p)
	}
}

// forget takes p, which is dropped, out of the map of demands.
func (c *DenyCache) forget(p *place) {
	shard := c.placeShard(p.key)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if shard.places[p.question] == p {
		delete(shard.places, p.question)
		c.count(p, -1)
	}
}

// Flush drops everything: the server, or a connection that was to tell of changes, has forgotten what this client knows.
func (c *DenyCache) Flush() {
	c.stats.flushes.Add(1)
	for i := range c.states {
		states := &c.states[i]
		states.mu.Lock()
		all := states.places
		states.places = make(map[string][]*place)
		for _, places := range all {
			for _, p := range places {
				p.refusal.Store(dropped)
			}
		}
		states.mu.Unlock()
		for _, places := range all {
			for _, p := range places {
				c.forget(p)
			}
		}
	}
}

// Close drops everything for good.
func (c *DenyCache) Close() {
	if c == nil {
		return
	}
	c.off.Store(true)
	c.Flush()
}

// Stats returns what the cache has done so far.
func (c *DenyCache) Stats() CacheStats {
	if c == nil {
		return CacheStats{}
	}
	stats := CacheStats{
		Enabled:  true,
		Stored:   c.stats.stored.Load(),
		Poisoned: c.stats.poisoned.Load(),
		Pushes:   c.stats.pushes.Load(),
		Flushes:  c.stats.flushes.Load(),
		Entries:  c.stats.entries.Load(),
		Bytes:    c.stats.bytes.Load(),
	}
	for i := range c.places {
		stats.Refusals += c.places[i].refusals.Load()
	}
	return stats
}
