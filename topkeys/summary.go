package topkeys

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/truewindow/ratelimit/internal/longkey"
)

const (
	// maxExponent is the number of half-lives after which counts are scaled to a new base. A
	// float64 has room for 2^1023.
	maxExponent = 64
	// least is the lowest count that is listed.
	least = .001
)

// A counter has the count of a key. Its key was refused between count - err and count times.
type counter struct {
	key        string
	count, err float64
	index      int // in the heap
}

// A summary has the counters of one limit. Counts are multiples of the weight that a refusal had at
// base. A refusal weighs twice as much after each half-life, so the order of the counters changes
// only with refusals.
type summary struct {
	mu       sync.Mutex
	size     int
	counters map[string]*counter
	lowest   byCount
	total    float64 // of all refusals
	base     float64 // half-lives since the start
	latest   float64 // half-lives since the start
}

func newSummary(size int) *summary {
	return &summary{size: size, counters: make(map[string]*counter)}
}

// refuse counts a refusal of key. If all counters are in use, a key without a counter takes over
// the lowest one and its count, because the key may have been refused as often before.
func (s *summary) refuse(key string, now float64) {
	key = longkey.Shorten(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	weight := s.weight(now)
	s.total += weight
	c := s.counters[key]
	if c == nil {
		if len(s.lowest) < s.size {
			c = new(counter)
			heap.Push(&s.lowest, c)
		} else {
			c = s.lowest[0]
			delete(s.counters, c.key)
			c.err = c.count
		}
		c.key = strings.Clone(key)
		s.counters[c.key] = c
	}
	c.count += weight
	heap.Fix(&s.lowest, c.index)
}

// weight returns what a refusal counts now.
func (s *summary) weight(now float64) float64 {
	s.latest = max(s.latest, now)
	if s.latest-s.base > maxExponent {
		scale := math.Exp2(s.base - s.latest)
		for _, c := range s.lowest {
			c.count *= scale
			c.err *= scale
		}
		s.total *= scale
		s.base = s.latest
	}
	return math.Exp2(s.latest - s.base)
}

// top returns the count of all refusals and the keys with the highest counts, in order.
func (s *summary) top(now float64) (refusals float64, keys []Key) {
	s.mu.Lock()
	weight := s.weight(now)
	refusals = s.total / weight
	for _, c := range s.lowest {
		if count := c.count / weight; count >= least {
			keys = append(keys, Key{Name: c.key, Count: count, Error: c.err / weight})
		}
	}
	s.mu.Unlock()
	slices.SortFunc(keys, func(a, b Key) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name))
	})
	return refusals, keys
}

// byCount is a heap of counters, for package heap.
type byCount []*counter

func (h byCount) Len() int           { return len(h) }
func (h byCount) Less(i, j int) bool { return h[i].count < h[j].count }

func (h byCount) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push appends c.
func (h *byCount) Push(c any) {
	added := c.(*counter)
	added.index = len(*h)
	*h = append(*h, added)
}

// Pop is not used: a counter is taken over, never removed.
func (h *byCount) Pop() any { panic("topkeys: a counter is removed") }
