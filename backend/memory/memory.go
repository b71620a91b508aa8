// Package memorystore keeps the state of limits in the process's memory: the fastest store, for limits that one process decides alone.
//
// A decision takes one lock of 64 and allocates nothing once the key is known. The clock is monotonic, so a change of the wall clock does
// not matter; while the machine is suspended it stands still, which frees units later and never sooner.
//
// The store is bounded. A state takes about 120 bytes, its key, and 12 to 18 bytes for each record; a key of more than 128 bytes is held as a
// hash of that length. [Options.MaxKeys] says how many states there may be,
// and [Options.WhenFull] what happens then. A key that still counts is never forgotten, since to forget is to admit.
package memorystore

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit"
)

// DefaultMaxKeys is the number of states that a store holds unless told otherwise.
const DefaultMaxKeys = 1_000_000

// ErrInvalidOptions says that an option is out of range.
var ErrInvalidOptions = errors.New("memorystore: invalid options")

// WhenFull says how a store decides for a key it does not know when it holds MaxKeys states that still count.
type WhenFull uint8

const (
	// Refuse answers with [ratelimit.ErrCapacity]: there is no true time to retry after, so the caller's policy decides.
	Refuse WhenFull = iota
	// Overflow lets all unknown keys share one more state for each algorithm value, together held to its limit, and goes on so until that
	// state has run out. A Reset does nothing to it.
	Overflow
)

// Options of a store. The zero value is ready for use.
type Options struct {
	// MaxKeys is the most states that the store holds, one for each limit of each key. 0 is DefaultMaxKeys.
	MaxKeys int
	// WhenFull is what happens to a new key beyond MaxKeys. Zero is Refuse.
	WhenFull WhenFull
	// Now is the clock, in µs since the Unix epoch, for tests. It must be safe for simultaneous use. nil is the process's monotonic clock.
	Now func() int64
}

// Store is a [ratelimit.Store] in memory. It is safe for simultaneous use. Create one with [New].
type Store struct {
	shards   [numShards]shard // first, so that each begins with a line of the cache
	clock    func() int64     // nil: the monotonic clock
	start    time.Time
	epoch    int64 // start in ns since the Unix epoch
	seed     maphash.Seed
	maxKeys  int64
	keys     atomic.Int64 // states that are there or for which there is a reservation
	overflow *overflow    // nil: refuse
	refused  atomic.Int64 // for want of room
	closed   atomic.Bool
	stop     chan struct{}
	stopped  chan struct{}
}

var _ ratelimit.Store = (*Store)(nil)

// New returns an empty store; nil options are the zero Options. Close it when it is no longer needed: it has a goroutine that forgets what
// has run out. An error wraps [ErrInvalidOptions].
func New(opts *Options) (*Store, error) {
	if opts == nil {
		opts = &Options{}
	}
	if opts.MaxKeys < 0 {
		return nil, fmt.Errorf("%w: MaxKeys %d is negative", ErrInvalidOptions, opts.MaxKeys)
	}
	if opts.WhenFull > Overflow {
		return nil, fmt.Errorf("%w: unknown WhenFull %d", ErrInvalidOptions, opts.WhenFull)
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
		s.overflow = &overflow{logs: make(map[ratelimit.Algorithm]*overflowLog)}
	}
	now := s.now()
	for i := range s.shards {
		s.shards[i].init(s.seed, &s.keys, now)
	}
	go s.clean()
	return s, nil
}

// now reads the clock: unless told otherwise, the wall clock when the store was made and the time since.
func (s *Store) now() int64 {
	if s.clock != nil {
		return s.clock()
	}
	return (s.epoch + int64(time.Since(s.start))) / int64(time.Microsecond)
}

// Take decides one demand. Errors are those of [ratelimit.CheckTake], [ratelimit.ErrCapacity], [ratelimit.ErrCorruptState] and
// [ratelimit.ErrClosed].
func (s *Store) Take(ctx context.Context, d ratelimit.Demand) (res ratelimit.Result, err error) {
	if ctx.Err() != nil {
		return ratelimit.Result{}, ratelimit.CheckTake(ctx, d)
	}
	if len(d.Key) > maxKey {
		d.Key = keyOf(d.Key)
	}
	hash := maphash.String(s.seed, d.Key)
	sh := s.shard(hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	known := d.Algorithm == sh.last.algorithm
	if !known || d.Op > ratelimit.Look || d.N < 1 || d.N > sh.last.max || d.Key == "" {
		if err := ratelimit.CheckTake(context.Background(), d); err != nil {
			return ratelimit.Result{}, err
		}
	}
	if s.closed.Load() {
		return ratelimit.Result{}, ratelimit.ErrClosed
	}
	now := s.now()
	id := sh.find(hash, &d, known)
	if id == none {
		return s.takeUnknown(sh, hash, now, d)
	}
	var next []byte
	var keep time.Duration
	next, keep, res = d.Algorithm.Step(sh.entry(id).state, now, d)
	if keep > 0 {
		sh.store(id, next, now, keep)
	} else if keep < 0 {
		return ratelimit.Result{}, ratelimit.ErrCorruptState
	}
	return res, nil
}

// takeUnknown decides for a key without a state. Its shard is locked.
func (s *Store) takeUnknown(sh *shard, hash uint64, now int64, d ratelimit.Demand) (ratelimit.Result, error) {
	where, err := s.place(sh, 1<<(hash>>shardShift), now, d)
	if err != nil {
		return ratelimit.Result{}, err
	}
	if where == inOverflow {
		return s.overflow.take(now, d)
	}
	next, keep, res := d.Step(nil, now)
	if keep > 0 && len(next) > 0 {
		sh.insert(hash, d, next, expiry(now, keep))
	} else if where == inShard {
		s.keys.Add(-1)
	}
	if keep < 0 {
		return ratelimit.Result{}, ratelimit.ErrCorruptState
	}
	return res, nil
}

// TakeAll decides several demands as one. Errors are those of Take and of [ratelimit.CheckTakeAll].
func (s *Store) TakeAll(ctx context.Context, ds []ratelimit.Demand, out []ratelimit.Result) error {
	if err := ratelimit.CheckTakeAll(ctx, ds, out); err != nil {
		return err
	}
	if s.closed.Load() {
		return ratelimit.ErrClosed
	}
	ds = keysOf(ds)
	var room [8]target
	targets := room[:0]
	var locks uint64
	for i := range ds {
		hash := maphash.String(s.seed, ds[i].Key)
		targets = append(targets, target{hash: hash})
		locks |= 1 << (hash >> shardShift)
	}
	s.lock(locks)
	defer s.unlock(locks)
	return s.takeAll(locks, targets, s.now(), ds, out)
}

// lock takes the locks of a set of shards, in order.
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

// Len returns the number of states, those included that have run out and are not forgotten yet.
func (s *Store) Len() int { return int(s.keys.Load()) }

// Stats tells how near a store is to its bounds. Refused and Overflowed are counts since the store was made.
type Stats struct {
	Keys       int   // states held, those included that have run out and are not forgotten yet
	MaxKeys    int   // the most that there may be; a new key finds no room while there are as many that still count
	Shared     int   // states that unknown keys share, beside Keys: above 0 while the store overflows
	Refused    int64 // calls answered with [ratelimit.ErrCapacity]
	Overflowed int64 // demands decided on a shared state
}

// Stats returns counts that were right one after the other, not all at the same moment. It takes no lock and costs decisions nothing.
func (s *Store) Stats() Stats {
	st := Stats{Keys: s.Len(), MaxKeys: int(s.maxKeys), Refused: s.refused.Load()}
	if s.overflow != nil {
		st.Shared, st.Overflowed = int(s.overflow.n.Load()), s.overflow.demands.Load()
	}
	return st
}

// Close stops the store and waits for its goroutine to end. Calls after it return [ratelimit.ErrClosed]. It returns nil, also when
// called again.
func (s *Store) Close() error {
	if !s.closed.Swap(true) {
		close(s.stop)
	}
	<-s.stopped
	return nil
}
