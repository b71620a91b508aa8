package dashboard

import (
	"context"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/shadow"
)

const (
	span        = 15 * 60               // seconds of the history
	slotSeconds = 15                    // of what is older
	slots       = 60*60/slotSeconds + 1 // the newest has not ended
	maxLimits   = 1000
	others      = "_other" // the name of all further limits
)

// A kind is what a decision counts as. One decision may count as several.
type kind int

const (
	admitted kind = iota
	refused
	undecided // an error
	cached    // of those that were decided: by the store's cache
	local     // by the memory of the process
	open      // by the policy
	here      // by this process, from units that it has taken ahead
	stricter  // of a trial: it refused what the live limit admitted
	looser    // and it admitted what that refused
	warned
	kinds
)

// counts are numbers of decisions by kind.
type counts [kinds]int64

// timeline has the counts of limits by the second, and for an hour by the slot.
type timeline struct {
	limits atomic.Pointer[map[string]*series]

	mu      sync.Mutex
	seconds int       // that have ended
	at      time.Time // when the last one did
	all     series    // the sum of all limits but trials
}

// series are the counts of a limit.
type series struct {
	name  string
	trial bool
	limit atomic.Pointer[ratelimit.Limit] // the newest
	total [kinds]atomic.Int64
	used  atomic.Int32 // the largest share that a decision of this second has found used, in ‰
	open  atomic.Int64 // holds of this process
	units atomic.Bool  // decisions were of several units

	// Guarded by mu of the history.
	sampled counts               // of total
	in      [3]counts            // in the last minute, 15 minutes and hour
	ring    [span][kinds]uint32  // by the second
	slots   [slots][kinds]uint32 // by slots, the newest of which has not ended
	fullest [slots]int16         // the largest shares used
}

func (h *timeline) init() { h.limits.Store(new(map[string]*series)) }

// of returns the series of a limit.
func (h *timeline) of(limit ratelimit.Limit, trial bool) *series {
	s := (*h.limits.Load())[limit.Name]
	if s == nil {
		s = h.add(limit.Name, trial)
	}
	if known := s.limit.Load(); known == nil || *known != limit {
		s.know(limit)
	}
	return s
}

// know is apart from of, so that only a change allocates.
func (s *series) know(limit ratelimit.Limit) { s.limit.Store(&limit) }

// add returns a new series, or that of the others if there are too many.
func (h *timeline) add(name string, trial bool) *series {
	h.mu.Lock()
	defer h.mu.Unlock()
	limits := *h.limits.Load()
	if len(limits) >= maxLimits {
		name, trial = others, false
	}
	if s := limits[name]; s != nil {
		return s
	}
	limits = maps.Clone(limits)
	if limits == nil {
		limits = make(map[string]*series)
	}
	s := &series{name: strings.Clone(name), trial: trial}
	limits[s.name] = s
	h.limits.Store(&limits)
	return s
}

// sorted returns all series by their names.
func (h *timeline) sorted() []*series {
	return slices.SortedFunc(maps.Values(*h.limits.Load()),
		func(a, b *series) int { return strings.Compare(a.name, b.name) })
}

// Observe counts a decision: pass it to [ratelimit.Limiter.WithObserver]. Takes, forces and what
// reserves count, and peeks that are refused, as a claim on a block is. A limit that admits a call
// which another limit refuses counts nothing.
func (p *Page) Observe(_ context.Context, o ratelimit.Observation) {
	for i, limit := range o.Limits {
		if k, ok := outcome(&o, i); ok {
			p.history.of(limit, false).count(k, &o, i)
		}
		if i < len(o.Open) && o.Open[i] != 0 {
			p.history.of(limit, false).open.Add(int64(o.Open[i]))
		}
	}
}

// ObserveShadow counts a decision of a trial: pass it to [shadow.New]. The page shows beside what
// the trial admits and refuses where it differs from the live limits.
func (p *Page) ObserveShadow(_ context.Context, o shadow.Observation) {
	live := !slices.ContainsFunc(o.Live, func(r ratelimit.Result) bool { return !r.Allowed })
	for i, limit := range o.Limits {
		k, ok := outcome(&o.Observation, i)
		if !ok {
			continue
		}
		s := p.history.of(limit, true)
		s.count(k, &o.Observation, i)
		switch {
		case o.Live == nil: // undecided
		case k == refused && live:
			s.total[stricter].Add(1)
		case k == admitted && !live:
			s.total[looser].Add(1)
		}
	}
}

// Warn counts a decision under a limit that somebody has to be warned of.
func (p *Page) Warn(limit ratelimit.Limit) { p.history.of(limit, false).total[warned].Add(1) }

// outcome returns what the limit at index i of an observation has decided, or that it is no
// decision.
func outcome(o *ratelimit.Observation, i int) (k kind, ok bool) {
	switch {
	case o.Op == driver.OpReset, o.Op == driver.OpSettle, o.Op == driver.OpHold && o.N == 0:
		return 0, false
	case o.Err != nil:
		return undecided, o.Op != driver.OpPeek
	case !o.Results[i].Allowed:
		return refused, true
	}
	return admitted, o.Admitted && o.Op != driver.OpPeek // else another limit has refused
}

// count counts a decision.
func (s *series) count(k kind, o *ratelimit.Observation, i int) {
	s.total[k].Add(1)
	if k == undecided {
		return
	}
	r := &o.Results[i]
	s.noteUse(r)
	if o.N > 1 && !s.units.Load() {
		s.units.Store(true)
	}
	switch r.Source {
	case driver.SourceCache:
		s.total[cached].Add(1)
	case driver.SourceLocal:
		s.total[local].Add(1)
	case driver.SourceOpen:
		s.total[open].Add(1)
	case driver.SourceLease:
		s.total[here].Add(1)
	}
}

// noteUse notes the share of a limit that a decision has found used.
func (s *series) noteUse(r *ratelimit.Result) {
	if r.Source == driver.SourceOpen || r.Limit.Max <= 0 {
		return
	}
	used := int32(1000 * max(0, r.Limit.Max-r.Remaining) / r.Limit.Max)
	for {
		known := s.used.Load()
		if used <= known || s.used.CompareAndSwap(known, used) {
			return
		}
	}
}

// sample ends a second.
func (h *timeline) sample(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.at = now
	h.seconds++
	var sum counts
	for _, s := range *h.limits.Load() {
		var n counts
		for k := range s.total {
			total := s.total[k].Load()
			n[k] = min(total-s.sampled[k], math.MaxUint32)
			s.sampled[k] = total
		}
		h.addLocked(s, &n)
		slot := &s.fullest[h.slot(0)]
		*slot = max(*slot, int16(s.used.Swap(0)))
		if !s.trial {
			for k := range n {
				sum[k] += n[k]
			}
		}
	}
	h.addLocked(&h.all, &sum)
}

// addLocked adds the second that has ended to s.
func (h *timeline) addLocked(s *series, n *counts) {
	old, slot := &s.ring[h.second(0)], &s.slots[h.slot(0)]
	left := &s.slots[h.slot(hour.seconds/slotSeconds)]
	begins := h.seconds%slotSeconds == 1 // a slot
	if begins {
		s.fullest[h.slot(0)] = 0
	}
	for k, n := range n {
		s.in[0][k] += n - int64(s.ring[h.second(minute.seconds)][k])
		s.in[1][k] += n - int64(old[k])
		s.in[2][k] += n
		if begins {
			s.in[2][k] -= int64(left[k])
			slot[k] = 0
		}
		old[k] = uint32(n)
		slot[k] += uint32(n)
	}
}

// second returns the index in the rings of the second that ended so many seconds before the last.
func (h *timeline) second(ago int) int { return (h.seconds - ago + 2*span) % span }

// slot returns the index of the slot so many before the newest.
func (h *timeline) slot(ago int) int {
	return ((h.seconds+slotSeconds-1)/slotSeconds - ago + 2*slots) % slots
}

// lastLocked returns the decisions of a limit by kind in the last seconds.
func (h *timeline) lastLocked(s *series, seconds int) (c counts) {
	for ago := range seconds {
		for k, n := range s.ring[h.second(ago)] {
			c[k] += int64(n)
		}
	}
	return c
}

// inLocked returns the decisions of a limit by kind in a range.
func (r *timeRange) inLocked(s *series) *counts {
	return &s.in[slices.Index(ranges, r)]
}

// fullestLocked returns the largest share of a limit that was used in a range, in ‰.
func (h *timeline) fullestLocked(s *series, r *timeRange) (most int) {
	for ago := range r.seconds / slotSeconds {
		most = max(most, int(s.fullest[h.slot(ago)]))
	}
	return most
}

// columnsLocked returns the decisions of a limit by kind in n columns of a range, the oldest first.
func (h *timeline) columnsLocked(s *series, r *timeRange, n int) []counts {
	all := make([]counts, n)
	each := r.seconds / n
	for i := range all {
		after := n - 1 - i // columns
		if r == hour {
			for ago := range each / slotSeconds { // the newest slot has not ended
				for k, n := range s.slots[h.slot(1+after*each/slotSeconds+ago)] {
					all[i][k] += int64(n)
				}
			}
			continue
		}
		for ago := range each {
			for k, n := range s.ring[h.second(after*each+ago)] {
				all[i][k] += int64(n)
			}
		}
	}
	return all
}

// ageLocked returns how many seconds of a range the history has.
func (h *timeline) ageLocked(r *timeRange) int { return max(1, min(h.seconds, r.seconds)) }

// totalOf returns the sum of the limits but trials that a viewer may see; nil means all.
func (h *timeline) totalOf(maySee func(string) bool) *series {
	if maySee == nil {
		return &h.all
	}
	sum := new(series)
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range *h.limits.Load() {
		if s.trial || !maySee(s.name) {
			continue
		}
		for i := range s.in {
			for k, n := range s.in[i] {
				sum.in[i][k] += n
			}
		}
		for i := range s.ring {
			for k, n := range s.ring[i] {
				sum.ring[i][k] += n
			}
		}
		for i := range s.slots {
			for k, n := range s.slots[i] {
				sum.slots[i][k] += n
			}
		}
	}
	return sum
}
