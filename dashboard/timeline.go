package dashboard

import (
	"context"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/shadow"
)

const (
	span      = 15 * 60 // seconds of the history
	maxLimits = 1000
	others    = "_other" // the name of all further limits
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

// timeline has the counts of limits by the second.
type timeline struct {
	limits atomic.Pointer[map[string]*series]

	mu   sync.Mutex
	last int // index of the second that ended last in the rings
}

// series are the counts of a limit.
type series struct {
	name  string
	trial bool
	limit atomic.Pointer[ratelimit.Limit] // the newest
	block atomic.Bool                     // its Max is a time
	total [kinds]atomic.Int64

	// Guarded by mu of the history.
	sampled                 counts // of total
	second, minute, quarter counts // in the last second, 60 seconds and 15 minutes
	ring                    [span][kinds]uint32
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
	switch o.Results[i].Source {
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

// sample ends a second.
func (h *timeline) sample() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = (h.last + 1) % span
	for _, s := range *h.limits.Load() {
		for k := range s.total {
			total := s.total[k].Load()
			n := min(total-s.sampled[k], math.MaxUint32)
			s.sampled[k], s.second[k] = total, n
			s.quarter[k] += n - int64(s.ring[h.last][k])
			s.minute[k] += n - int64(s.ring[h.index(60)][k])
			s.ring[h.last][k] = uint32(n)
		}
	}
}

// noteBlocks notes which limits block keys, which no observation says.
func (h *timeline) noteBlocks(limits []ratelimit.Algorithm) {
	known := *h.limits.Load()
	for _, a := range limits {
		if s := known[a.Limit().Name]; s != nil {
			_, block := a.(algorithm.Block)
			s.block.Store(block)
		}
	}
}

// index returns the index in the rings of the second that ended so many seconds before the last.
func (h *timeline) index(ago int) int { return (h.last - ago + span) % span }

// sumLocked returns the decisions of a limit by kind in n seconds, the last of which ended so many
// seconds before the last of all.
func (h *timeline) sumLocked(s *series, ago, n int) (c counts) {
	for i := range n {
		for k, n := range s.ring[h.index(ago+i)] {
			c[k] += int64(n)
		}
	}
	return c
}
