// Package memorystore keeps the state of limits in the process's memory. It is the fastest store,
// for limits that one process decides alone. [github.com/truewindow/ratelimit/backend.Open] opens
// it by the URL "memory" or, with another MaxKeys, "memory:?max-keys=100000".
//
// A decision locks one of 64 shards, or several for TakeAll, and allocates nothing if the key has a
// state already. The clock is monotonic, so a change of the wall clock does not matter. It stands
// still while the machine is suspended, which frees units later and never sooner.
//
// The store is bounded. A state takes about 120 bytes plus its key plus 12 to 18 bytes for each
// record; a key of more than 128 bytes is stored as its hash. [Options.MaxKeys] bounds the number
// of states. A state with units that still count is never evicted, since that would admit too many.
package memorystore

import (
	"fmt"
	"hash/maphash"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/direct"
)

// DefaultMaxKeys is the MaxKeys of the zero Options.
const DefaultMaxKeys = 1_000_000

// Options of a store. The zero value is ready for use.
type Options struct {
	// MaxKeys is the largest number of states, one for each limit of each key. While the units of
	// all of them still count, a take, a peek or a force on a key without a state fails with
	// [driver.ErrCapacity]. Zero means DefaultMaxKeys.
	MaxKeys int
	// Now replaces the clock for tests, in µs since the Unix epoch. It must be safe for
	// concurrent use. Nil means the monotonic clock of the process. Limiter.Wait sleeps by the
	// process's clock, not by Now: to test code that waits, use a bubble of testing/synctest and no
	// Now.
	Now func() int64
}

// Store is a [driver.Store] in memory. It is safe for concurrent use. Create one with [New].
type Store struct {
	shards  [numShards]shard // first, so that each begins at a cache line
	clock   func() int64     // nil: the monotonic clock
	start   time.Time
	epoch   int64 // start in ns since the Unix epoch
	seed    maphash.Seed
	maxKeys int64
	keys    atomic.Int64 // states, and reservations for more
	refused atomic.Int64 // calls that failed with ErrCapacity
	closed  atomic.Bool
	alarm   alarm
	stop    chan struct{}
	stopped chan struct{}
}

var _ direct.Store = (*Store)(nil)

// New returns an empty store; nil options are the zero Options. Close it when it is no longer
// needed: a goroutine deletes each state within a second of its expiry, and sleeps until then. An
// error wraps [driver.ErrInvalid].
func New(opts *Options) (*Store, error) {
	if opts == nil {
		opts = &Options{}
	}
	if opts.MaxKeys < 0 {
		return nil, fmt.Errorf("%w options: MaxKeys %d is negative",
			driver.ErrInvalid, opts.MaxKeys)
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
	s.alarm.init()
	now := s.now()
	for i := range s.shards {
		s.shards[i].init(s.seed, &s.keys, &s.alarm, now)
	}
	go s.clean()
	return s, nil
}

// shard returns the shard of the keys with a hash.
func (s *Store) shard(hash uint64) *shard { return &s.shards[hash>>shardShift] }

// setOf returns the set with only the shard of a hash. Bit i of a set stands for shard i.
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

// Stats are the statistics of a store.
type Stats struct {
	Keys    int   // states held, including expired ones that are not deleted yet
	MaxKeys int   // the bound on Keys
	Refused int64 // calls that failed with [driver.ErrCapacity] since the store was made
}

// Stats returns the statistics of the store. Each number was right at some moment of the call.
// Stats takes no lock and does not slow decisions.
func (s *Store) Stats() Stats {
	return Stats{Keys: int(s.keys.Load()), MaxKeys: int(s.maxKeys), Refused: s.refused.Load()}
}

// Close stops the store and waits for its goroutine to end. Later calls fail with
// [driver.ErrClosed]. Close always returns nil and may be called again.
func (s *Store) Close() error {
	if !s.closed.Swap(true) {
		close(s.stop)
	}
	<-s.stopped
	return nil
}
