package layer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/truewindow/ratelimit"
)

const (
	// settleEvery is how often debts are tried to be settled while nobody asks about their keys.
	settleEvery = 200 * time.Millisecond
	// settleTimeout bounds a call that settles, for stores that have no deadline of their own.
	settleTimeout = time.Second
	// maxUnknown is how often a debt is sent whose answer never comes. Each may be recorded, which refuses more; none may, which admits more.
	maxUnknown = 3
	// settlers is the most debts that are settled at a time.
	settlers = 16
	// expireAtOnce is the most debts that are looked at for whether they still count, under the lock.
	expireAtOnce = 4096
)

// debt is what was admitted locally on one state and is not in the store yet.
type debt struct {
	demand ratelimit.Demand // a Force; N is not set
	units  int64
	last   int64 // stamp of the last admission, on the local clock
	trying *attempt

	unknown int // attempts to record it whose answer never came
}

// attempt is one at settling a debt.
type attempt struct {
	done chan struct{}
	err  error // once done
}

// mayOwe reports whether there is room for the debts that ds may become. mu is held.
func (s *Degraded) mayOwe(ds []ratelimit.Demand) bool {
	more := 0
	if len(s.owed)+len(ds) > s.maxOwed {
		for _, d := range ds {
			if s.owed[idOf(d)] == nil {
				more++
			}
		}
	}
	return len(s.owed)+more <= s.maxOwed
}

// owe notes that d was admitted locally. mu is held.
func (s *Degraded) owe(d ratelimit.Demand, at int64) {
	if d.Op == ratelimit.Look {
		return
	}
	id := idOf(d)
	o := s.owed[id]
	if o == nil {
		o = new(debt)
		s.owed[id] = o
		s.owing.Add(1)
		if !s.settling {
			s.settling = true
			s.running.Add(1)
			go s.settleAll()
		}
	}
	o.units = min(o.units+d.N, ratelimit.MaxUnits)
	o.last = at
	d.Op, d.N, d.At, d.Policy = ratelimit.Force, 0, 0, ratelimit.FailClosed
	o.demand = d
}

// pay takes units off a debt. mu is held.
func (s *Degraded) pay(o *debt, units int64) {
	o.units -= units
	if id := idOf(o.demand); o.units <= 0 && s.owed[id] == o {
		delete(s.owed, id)
		s.owing.Add(-1)
	}
}

// forget forgets the history of d's state, which was reset.
func (s *Degraded) forget(d ratelimit.Demand) {
	d.Op, d.N, d.At = ratelimit.Reset, 0, 0
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = s.local.Take(context.Background(), d) // it fails only when closed
	if o := s.owed[idOf(d)]; o != nil {
		s.pay(o, o.units)
	}
}

// counting returns how many units of o still count, by the local log. mu is held.
func (s *Degraded) counting(o *debt) int64 {
	d := o.demand
	d.Op, d.N = ratelimit.Look, 1
	res, err := s.local.Take(context.Background(), d)
	if err != nil || res.Remaining == 0 { // forced units may be more than there is room for
		return o.units
	}
	return min(o.units, (res.Limit-res.Remaining+s.instances-1)/s.instances)
}

// expire drops some debts that no longer count. mu is held.
func (s *Degraded) expire() {
	looked := 0
	for _, o := range s.owed {
		if looked++; looked > expireAtOnce {
			return
		}
		if o.trying == nil && s.counting(o) == 0 {
			s.pay(o, o.units)
		}
	}
}

// giveBackOwed gives back what was admitted locally and is not in the store yet, if that is what d asks.
func (s *Degraded) giveBackOwed(d ratelimit.Demand) (res ratelimit.Result, ok bool) {
	if d.Op != ratelimit.GiveBack {
		return res, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.owed[idOf(d)]
	if o == nil || o.trying != nil {
		return res, false
	}
	look := d
	look.Op, look.N, look.At = ratelimit.Look, 1, 0
	before, err := s.local.Take(context.Background(), look)
	if err != nil {
		return res, false
	}
	d.N = min(d.N, o.units)
	if !s.scale(&d) {
		return res, false
	}
	if res, err = s.local.Take(context.Background(), d); err != nil || res.Remaining == before.Remaining {
		return res, false
	}
	s.pay(o, (res.Remaining-before.Remaining)/s.instances)
	s.stats.local.Add(1)
	return s.mine(res), true
}

// settle returns when what is owed on d's state is in the store, or with the error that says why it is not.
func (s *Degraded) settle(ctx context.Context, d ratelimit.Demand) error {
	s.mu.Lock()
	o := s.owed[idOf(d)]
	if o == nil || s.closed {
		s.mu.Unlock()
		return nil
	}
	try := o.trying
	if try == nil {
		try = s.try(o)
	}
	s.mu.Unlock()
	select {
	case <-try.done:
		return try.err
	case <-ctx.Done():
		return fmt.Errorf("%w: what was admitted locally is not recorded yet: %w", ratelimit.ErrUnavailable, ctx.Err())
	}
}

// try begins to settle o, on its own: a caller who leaves shall not cut it off. mu is held.
func (s *Degraded) try(o *debt) *attempt {
	try := &attempt{done: make(chan struct{})}
	o.trying = try
	owed := o.units
	force := o.demand
	force.N = s.counting(o)
	s.running.Add(1)
	go func() {
		defer s.running.Done()
		sent, err := s.force(force)
		s.mu.Lock()
		if sent && err != nil {
			o.unknown++
		}
		if err == nil || o.unknown == maxUnknown {
			s.pay(o, owed)
			o.unknown = 0
		}
		o.trying, try.err = nil, err
		s.mu.Unlock()
		close(try.done)
	}()
	return try
}

// force records d in the store. sent tells that it may have arrived although there is an error. Nothing is sent before the store has answered: a server
// that only stood still would record all of it in the end.
func (s *Degraded) force(d ratelimit.Demand) (sent bool, err error) {
	if d.N == 0 {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
	defer cancel()
	if s.away.Load() { // a look may be sent as often as one likes
		look := d
		look.Op, look.N = ratelimit.Look, 1
		res, err := s.store.Take(ctx, look)
		if err != nil {
			return false, err
		}
		s.heard(res)
	}
	res, err := s.store.Take(ctx, d)
	if err == nil {
		s.heard(res)
		s.stats.settled.Add(d.N)
		return true, nil
	}
	s.left(ctx, d, err)
	switch {
	case errors.Is(err, ratelimit.ErrOutcomeUnknown):
		s.stats.unknown.Add(d.N)
		return true, err
	case !errors.Is(err, ratelimit.ErrUnavailable), errors.Is(err, ratelimit.ErrCorruptState):
		return true, nil // the store will never take it
	}
	return false, err
}

// settleAll settles debts until there are none.
func (s *Degraded) settleAll() {
	defer s.running.Done()
	ticker := time.NewTicker(settleEvery)
	defer ticker.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-ticker.C:
		}
		for s.settleSome() {
		}
		s.mu.Lock()
		s.expire()
		if len(s.owed) == 0 {
			s.settling = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
	}
}

// settleSome tries some debts, and reports whether there may be more that can be settled now.
func (s *Degraded) settleSome() bool {
	most := settlers
	if s.away.Load() {
		most = 1
	}
	tries := make([]*attempt, 0, settlers)
	s.mu.Lock()
	for _, o := range s.owed {
		if len(tries) == most || s.closed {
			break
		}
		if o.trying == nil {
			tries = append(tries, s.try(o))
		}
	}
	s.mu.Unlock()
	for _, try := range tries {
		if <-try.done; try.err != nil {
			most = 0
		}
	}
	return most > 0 && len(tries) > 0
}
