package httplimit

import (
	"errors"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/httplimit/headers"
)

// maxKnown is the largest number of limiters whose descriptions are kept.
const maxKnown = 256

// known caches the description of each limiter, because Limits returns a copy.
type known struct {
	byLimiter atomic.Pointer[map[*ratelimit.Limiter]*description] // never nil; maps do not change
	adding    sync.Mutex
}

func newKnown() *known {
	k := new(known)
	k.byLimiter.Store(&map[*ratelimit.Limiter]*description{})
	return k
}

// description is what the middleware needs of a limiter for each request.
type description struct {
	items    []headers.Item // with limits and units, without results
	policy   string         // RateLimit-Policy, if the store is not degraded
	inFlight bool
}

var errNoLimiter = errors.New("httplimit: a claim has no limiter")

// describe appends a description of the limiter of each claim to dst.
func (m *middleware) describe(
	dst []*description, claims []ratelimit.Claim,
) ([]*description, error) {
	byLimiter := *m.known.byLimiter.Load()
	for i := range claims {
		l := claims[i].Limiter
		if l == nil {
			return nil, errNoLimiter
		}
		d := byLimiter[l]
		if d == nil {
			d = m.describeNew(l)
			m.known.add(l, d)
		}
		dst = append(dst, d)
	}
	return dst, nil
}

func (m *middleware) describeNew(l *ratelimit.Limiter) *description {
	d := &description{inFlight: l.InFlight()}
	for _, limit := range l.Limits() {
		unit := m.units[limit.Name]
		if unit == "" && d.inFlight {
			unit = headers.ConcurrentRequests
		}
		d.items = append(d.items, headers.Item{Limit: limit, Unit: unit})
	}
	d.policy = string(headers.AppendPolicy(nil, m.told(d.items)))
	return d
}

// add adds d. If there is no room, it drops all other descriptions: their limiters may no longer be
// in use.
func (k *known) add(l *ratelimit.Limiter, d *description) {
	k.adding.Lock()
	defer k.adding.Unlock()
	next := map[*ratelimit.Limiter]*description{}
	if old := *k.byLimiter.Load(); len(old) < maxKnown {
		next = maps.Clone(old)
	}
	next[l] = d
	k.byLimiter.Store(&next)
}

// told returns the items that the fields describe: all except blocks.
func (m *middleware) told(items []headers.Item) []headers.Item {
	if len(m.blocks) == 0 {
		return items
	}
	var told []headers.Item
	for _, it := range items {
		if !m.blocks[it.Limit.Name] {
			told = append(told, it)
		}
	}
	return told
}
