// Package memorystore keeps the state of limits in the process's memory: the fastest store, for
// limits that one process decides alone.
//
// A decision takes one lock of 64 and allocates nothing once the key is known. The clock is
// monotonic, so a change of the wall clock does not matter; while the machine is suspended it
// stands still, which frees units later and never sooner.
//
// The store is bounded. A state takes about 120 bytes, its key, and 12 to 18 bytes for each record;
// a key of more than 128 bytes is held as a hash of that length. [Options.MaxKeys] says how many
// states there may be, and [Options.WhenFull] what happens then. A key that still counts is never
// forgotten, since forgetting it would admit too much.
package memorystore

import (
	"fmt"
	"hash/maphash"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit"
)

// DefaultMaxKeys is the number of states that a store holds unless told otherwise.
const DefaultMaxKeys = 1_000_000

// WhenFull says how a store that holds MaxKeys states which still count decides for a new key.
type WhenFull uint8

const (
	// Refuse returns [ratelimit.ErrCapacity]. Nobody knows when a retry would succeed, so the
	// limiter's policy decides.
	Refuse WhenFull = iota
	// Overflow lets new keys share one overflow state for each algorithm, together within its
	// limit, until that state has run out. A reset of such a key does nothing to it.
	Overflow
)

// Options of a store. The zero value is ready for use.
type Options struct {
	// MaxKeys is the largest number of states, one for each limit of each key. 0 is DefaultMaxKeys.
	MaxKeys int
	// WhenFull says what happens to a new key beyond MaxKeys. Zero is Refuse.
	WhenFull WhenFull
	// Now is the clock, in µs since the Unix epoch, for tests. It must be safe for simultaneous
	// use. Nil means the monotonic clock of the process. Limiter.Wait sleeps by the process's clock
	// and not by this one: test code that waits in a bubble of testing/synctest, without a Now.
	Now func() int64
}

// Store is a [ratelimit.Store] in memory. It is safe for simultaneous use. Create one with [New].
type Store struct {
	shards   [numShards]shard // first, so that each begins at a cache line
	clock    func() int64     // nil: the monotonic clock
	start    time.Time
	epoch    int64 // start in ns since the Unix epoch
	seed     maphash.Seed
	maxKeys  int64
	keys     atomic.Int64 // states, and reservations for more
	overflow *overflow    // nil: Refuse
	refused  atomic.Int64 // calls that failed with ErrCapacity
	closed   atomic.Bool
	stop     chan struct{}
	stopped  chan struct{}
}

var _ ratelimit.Store = (*Store)(nil)

// New returns an empty store; nil options are the zero Options. Close it when it is no longer
// needed: it has a goroutine that deletes what has run out. An error wraps
// [ratelimit.ErrInvalidOptions].
func New(opts *Options) (*Store, error) {
	if opts == nil {
		opts = &Options{}
	}
	invalid := ratelimit.ErrInvalidOptions
	if opts.MaxKeys < 0 {
		return nil, fmt.Errorf("%w: MaxKeys %d is negative", invalid, opts.MaxKeys)
	}
	if opts.WhenFull > Overflow {
		return nil, fmt.Errorf("%w: unknown WhenFull %d", invalid, opts.WhenFull)
	}
	s := &Store{
		clock:   opts.Now,
		start:   time.Now(),
		seed:    maphash.MakeSeed(),
		maxKeys: int64(opts.MaxKeys),
		stop:    make(chan struct{}),
		stopped: make(chan struct{}),
	}
	if s.maxKeys == 0 {
		s.maxKeys = DefaultMaxKeys
	}
	s.epoch = s.start.UnixNano()
	if opts.WhenFull == Overflow {
		s.overflow = &overflow{states: make(map[ratelimit.Algorithm]overflowState)}
	}
	now := s.now()
	for i := range s.shards {
		s.shards[i].init(s.seed, &s.keys, now)
	}
	go s.clean()
	return s, nil
}

// shard returns the shard of the keys with a hash.
func (s *Store) shard(hash uint64) *shard { return &s.shards[hash>>shardShift] }

// setOf returns the set of shards that has only the one of hash. Bit i of a set is shard i.
func setOf(hash uint64) uint64 { return 1 << (hash >> shardShift) }

// lock locks a set of shards, in ascending order.
func (s *Store) lock(set uint64) {
	for ; set != 0; set &= set - 1 {
		s.shards[bits.TrailingZeros64(set)].mu.Lock()
	}
}

func (s *Store) unlock(set uint64) {
	for ; set != 0; set &= set - 1 {
		s.shards[bits.TrailingZeros64(set)].mu.Unlock()
	}
}

// Stats are the statistics of a store. Refused and Overflowed are counts since it was made.
type Stats struct {
	Keys       int   // states held, including those that have run out and are not deleted yet
	MaxKeys    int   // the largest number of states that still count
	Shared     int   // overflow states, besides Keys; above 0 while the store overflows
	Refused    int64 // calls that failed with [ratelimit.ErrCapacity]
	Overflowed int64 // demands decided on an overflow state
}

// Stats returns the statistics of the store. Each number was right at some moment of the call.
// Stats takes no lock and costs decisions nothing.
func (s *Store) Stats() Stats {
	st := Stats{Keys: int(s.keys.Load()), MaxKeys: int(s.maxKeys), Refused: s.refused.Load()}
	if s.overflow != nil {
		st.Shared, st.Overflowed = int(s.overflow.n.Load()), s.overflow.demands.Load()
	}
	return st
}

// Close stops the store and waits for its goroutine to end. Later calls fail with
// [ratelimit.ErrClosed]. Its error is nil, also when it is called again.
func (s *Store) Close() error {
	if !s.closed.Swap(true) {
		close(s.stop)
	}
	<-s.stopped
	return nil
}
