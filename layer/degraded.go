package layer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/truewindow/ratelimit"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
)

// DegradedOptions are the options of [NewDegraded].
type DegradedOptions struct {
	// Instances is the number of processes that use the store inside. While it is away, each of them has one part in Instances of every
	// limit, rounded down to whole units. A larger number is safer and refuses more. There is no default.
	Instances int

	// MaxKeys is the most states that are remembered locally, one for each limit of each key. 0 is [memorystore.DefaultMaxKeys]. While
	// there is no room for a key, it is refused when the store is away. Keys for which something is owed to the store are held whole.
	MaxKeys int

	// OnChange, if not nil, is called when the store has left a demand undecided that it should have decided, and when it decides
	// again. It should return soon: the demand that showed it waits.
	OnChange func(away bool)
}

// Degraded is a store that decides from the memory of this process while the store inside is away. Create one with [NewDegraded]. It is
// safe for simultaneous use.
//
// The local decisions are made by the same algorithm, exactly, within this process's share of each limit; they have [ratelimit.SourceLocal], and
// their Limit and Remaining are those of the share. What the store has admitted for this process before counts. When the store
// is back, what was admitted locally and still counts is forced into it, before anything else is asked about the key: at the store's present, which
// is later and so can only refuse more. So in any window of time around an outage at most Max + Instances × (Max/Instances) units are admitted,
// if the store still has what it had. When the answer to what was forced never comes, it is forced again, twice at most.
//
// A call on a key for which something is owed may ask the store three times, one after the other: whether it is back, for what is owed, and for the
// demand. So it may wait three of the store's timeouts, and a TakeAll two for each such key and one more. A [Deadline] around bounds the whole.
//
// Away means an error that wraps [ratelimit.ErrUnavailable], but not those that are about one key or for good: [ratelimit.ErrCorruptState],
// [ratelimit.ErrCapacity], [ratelimit.ErrClosed], and the leaving of the caller. A demand whose answer never came may have been recorded; admitted
// locally, it may then count twice. Undecided stay, and are refused: demands that ask for another policy, those for more units than the share, those for a
// key for which there is no room, a Reset, and a GiveBack of what the store has admitted. A GiveBack of what was admitted
// locally has no effect once that was forced into the store.
//
// What was admitted locally is forgotten when the process ends, and so is what the others would have to know of it.
type Degraded struct {
	store     ratelimit.Store
	local     *memorystore.Store
	instances int64
	maxOwed   int
	onChange  func(away bool)

	away  atomic.Bool
	owing atomic.Int64 // len(owed), to be read without the lock
	stats degradedCounts

	// mu makes one of a local decision and the debt that comes of it.
	mu       sync.Mutex
	owed     map[stateID]*debt
	settling bool // there is a goroutine that settles
	closed   bool
	stop     chan struct{}
	running  sync.WaitGroup
}

var _ ratelimit.Store = (*Degraded)(nil)

type stateID struct{ key, limit, algorithm string }

func idOf(d ratelimit.Demand) stateID {
	return stateID{d.Key, d.Algorithm.Limit().Name, d.Algorithm.Name()}
}

// DegradedStats are counts since the store was made; Away, Owing and Known are of now.
type DegradedStats struct {
	Away      bool  // whether the store inside left the last demand undecided
	Local     int64 // demands that were decided locally
	Undecided int64 // demands that could not be decided locally either
	Owing     int64 // states with units that were admitted locally and are not in the store yet
	Settled   int64 // units that were forced into the store
	Unknown   int64 // units that were sent to be forced and whose answer never came; they are sent again twice
	Known     int64 // states that are remembered locally
	Forgotten int64 // admissions of the store that were not remembered for want of room
}

type degradedCounts struct {
	local, undecided, settled, unknown, forgotten atomic.Int64
}

// NewDegraded returns a store around store that decides locally while store is away. Close it when it is no longer needed. An error wraps
// [ErrInvalidOptions].
func NewDegraded(store ratelimit.Store, opts *DegradedOptions) (*Degraded, error) {
	if store == nil {
		return nil, fmt.Errorf("%w: no store", ErrInvalidOptions)
	}
	if opts == nil || opts.Instances < 1 {
		return nil, fmt.Errorf("%w: Instances is to be 1 or more, and has no default", ErrInvalidOptions)
	}
	if opts.MaxKeys < 0 {
		return nil, fmt.Errorf("%w: MaxKeys %d is negative", ErrInvalidOptions, opts.MaxKeys)
	}
	local, err := memorystore.New(&memorystore.Options{MaxKeys: opts.MaxKeys})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidOptions, err)
	}
	s := &Degraded{
		store: store, local: local, instances: int64(opts.Instances), maxOwed: opts.MaxKeys, onChange: opts.OnChange,
		owed: make(map[stateID]*debt), stop: make(chan struct{}),
	}
	if s.maxOwed == 0 {
		s.maxOwed = memorystore.DefaultMaxKeys
	}
	return s, nil
}

// Take decides one demand: the store inside does, or this process while that is away.
func (s *Degraded) Take(ctx context.Context, d ratelimit.Demand) (ratelimit.Result, error) {
	if s.owing.Load() > 0 && ratelimit.CheckTake(ctx, d) == nil {
		if res, ok := s.giveBackOwed(d); ok {
			return res, nil
		}
		if err := s.settle(ctx, d); err != nil {
			return s.decide(ctx, d, ratelimit.FailClosed.Undecided(d, err), err)
		}
	}
	if ctx.Err() != nil {
		return s.store.Take(ctx, d)
	}
	res, err := s.store.Take(ctx, d)
	if err != nil {
		return s.decide(ctx, d, res, err)
	}
	s.heard(res)
	s.learn(d, res)
	return res, nil
}

// TakeAll decides several demands as one.
func (s *Degraded) TakeAll(ctx context.Context, ds []ratelimit.Demand, out []ratelimit.Result) error {
	if s.owing.Load() > 0 && ratelimit.CheckTakeAll(ctx, ds, out) == nil {
		for i := range ds {
			if err := s.settle(ctx, ds[i]); err != nil {
				ratelimit.FailClosed.UndecidedAll(ds, out, err)
				return s.decideAll(ctx, ds, out, err)
			}
		}
	}
	if ctx.Err() != nil {
		return s.store.TakeAll(ctx, ds, out)
	}
	if err := s.store.TakeAll(ctx, ds, out); err != nil {
		return s.decideAll(ctx, ds, out, err)
	}
	s.heard(out[0])
	for i := range out {
		if !out[i].Allowed {
			return nil
		}
	}
	for i := range ds {
		s.learn(ds[i], out[i])
	}
	return nil
}

// Stats returns what the store has done so far. It takes no lock.
func (s *Degraded) Stats() DegradedStats {
	return DegradedStats{
		Away: s.away.Load(), Local: s.stats.local.Load(), Undecided: s.stats.undecided.Load(), Owing: s.owing.Load(),
		Settled: s.stats.settled.Load(), Unknown: s.stats.unknown.Load(), Known: int64(s.local.Len()), Forgotten: s.stats.forgotten.Load(),
	}
}

// Close ends what goes on in the background and forgets what is remembered locally, debts included. It does not close the store inside, which
// is asked as before; while it is away, nothing is decided any more.
func (s *Degraded) Close() error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.stop)
	}
	s.mu.Unlock()
	s.running.Wait()
	return s.local.Close()
}

// left reports whether err, with which the store inside left d undecided, means that it is away, and d may be decided locally.
func (s *Degraded) left(ctx context.Context, d ratelimit.Demand, err error) bool {
	switch {
	case !errors.Is(err, ratelimit.ErrUnavailable), errors.Is(ctx.Err(), context.Canceled):
		return false
	case errors.Is(err, ratelimit.ErrCorruptState), errors.Is(err, ratelimit.ErrCapacity), errors.Is(err, ratelimit.ErrClosed):
		return false
	}
	if !s.away.Swap(true) && s.onChange != nil {
		s.onChange(true)
	}
	return d.Policy == 0 || d.Policy == ratelimit.FailLocal
}

// heard notes that the store inside has decided.
func (s *Degraded) heard(res ratelimit.Result) {
	if res.Source != ratelimit.SourceStore || !s.away.Load() {
		return
	}
	if s.away.CompareAndSwap(true, false) && s.onChange != nil {
		s.onChange(false)
	}
}

// learn remembers what the store inside has admitted, so that it counts when the store is away.
func (s *Degraded) learn(d ratelimit.Demand, res ratelimit.Result) {
	switch {
	case d.Op == ratelimit.Reset:
		s.forget(d)
		return
	case !res.Allowed || d.Op != ratelimit.Take && d.Op != ratelimit.Force:
		return
	}
	d.Op = ratelimit.Force
	if !s.scale(&d) {
		s.stats.forgotten.Add(1)
	} else if _, err := s.local.Take(context.Background(), d); err != nil {
		s.stats.forgotten.Add(1)
	}
}

// scale makes d cost what it does of this process's share: Instances times as many units of the whole limit.
func (s *Degraded) scale(d *ratelimit.Demand) bool {
	if d.Op != ratelimit.Reset {
		if d.N > ratelimit.MaxUnits/s.instances {
			return false
		}
		d.N *= s.instances
	}
	return true
}

// mine returns res, of a demand that was scaled, in units of this process's share.
func (s *Degraded) mine(res ratelimit.Result) ratelimit.Result {
	res.Limit /= s.instances
	res.Remaining /= s.instances
	res.Source = ratelimit.SourceLocal
	return res
}

// decide decides d, which the store inside left undecided with res and err, or leaves it undecided.
func (s *Degraded) decide(ctx context.Context, d ratelimit.Demand, res ratelimit.Result, err error) (ratelimit.Result, error) {
	if !s.left(ctx, d, err) {
		return res, err
	}
	ds, out := [1]ratelimit.Demand{d}, [1]ratelimit.Result{}
	err = s.decideLocally(ds[:], out[:], err)
	return out[0], err
}

func (s *Degraded) decideAll(ctx context.Context, ds []ratelimit.Demand, out []ratelimit.Result, err error) error {
	local := len(ds) > 0
	for i := range ds {
		local = s.left(ctx, ds[i], err) && local
	}
	if !local {
		return err
	}
	return s.decideLocally(ds, out, err)
}

// decideLocally decides ds from memory, for this process's share. cause is the error with which the store inside left them undecided.
func (s *Degraded) decideLocally(ds []ratelimit.Demand, out []ratelimit.Result, cause error) error {
	if err := s.takeLocally(ds, out); err != nil {
		s.stats.undecided.Add(1)
		cause = fmt.Errorf("%w; nor from memory: %v", cause, err) //nolint:errorlint // what went wrong here is no property of the demand
		ratelimit.FailClosed.UndecidedAll(ds, out, cause)
		return cause
	}
	s.stats.local.Add(1)
	return nil
}

var (
	errNotLocal   = errors.New("only the store can give back or reset")
	errOverShare  = errors.New("more units than this process's share")
	errOwesEnough = errors.New("no room for another key")
)

func (s *Degraded) takeLocally(ds []ratelimit.Demand, out []ratelimit.Result) error {
	scaled := make([]ratelimit.Demand, len(ds))
	for i, d := range ds {
		switch {
		case d.Op > ratelimit.Force:
			return errNotLocal
		case !s.scale(&d), d.Op != ratelimit.Force && d.N > d.Algorithm.Limit().Max:
			return errOverShare
		}
		scaled[i] = d
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ratelimit.ErrClosed
	}
	if !s.mayOwe(ds) {
		return errOwesEnough
	}
	if err := s.local.TakeAll(context.Background(), scaled, out); err != nil {
		return err
	}
	admitted := true
	for i := range out {
		out[i] = s.mine(out[i])
		admitted = admitted && out[i].Allowed
	}
	if admitted {
		for i := range ds {
			s.owe(ds[i], out[i].At)
		}
	}
	return nil
}
