package denycache

import (
	"time"

	"github.com/truewindow/ratelimit/backend/internal/batch"
	"github.com/truewindow/ratelimit/driver"
)

// clock reads the time: that of the demands, which tests may inject, and that since start.
type clock struct {
	now   func() int64 // µs, or nil for the process's own clock
	start time.Time
}

// instant is a time on the clock of the demands and the time since the cache was made.
type instant struct {
	at    int64 // µs
	since time.Duration
}

func (c *clock) read() instant {
	since := time.Since(c.start)
	if c.now != nil {
		return instant{c.now(), since}
	}
	return instant{since.Microseconds(), since}
}

// refusal is a server's refusal of demands that it decided together. It is immutable.
type refusal struct {
	sent    instant       // of the request: no later than the server's decision
	ends    time.Duration // the earliest RetryAfter of the demands that were refused
	answers []answer      // to each demand
}

type answer struct {
	n      int64
	result driver.Result
}

// newRefusal returns the refusal of g, whose request was sent at sent, or nil if all of g was
// admitted.
func newRefusal(g *batch.Group, sent instant) *refusal {
	ends, refused := retryAfter(g)
	if !refused {
		return nil
	}
	r := &refusal{sent: sent, ends: ends, answers: make([]answer, len(g.Demands))}
	for i := range r.answers {
		r.answers[i] = answer{g.Demands[i].N, g.Results[i]}
	}
	return r
}

// removed marks an entry that was removed. No refusal is stored in it any more.
var removed = new(refusal)

// covers reports whether r answers ds, the demands of its entry with other numbers of units: no
// fewer where the demand was refused, and no more where it was not.
func (r *refusal) covers(ds []driver.Demand) bool {
	for i := range r.answers {
		n, a := ds[i].LeastUnits(), &r.answers[i]
		if a.result.Allowed && n > a.n || !a.result.Allowed && n < a.n {
			return false
		}
	}
	return true
}

// holds reports whether r may be returned at now, and the time since its request was sent. r ends
// with the earliest RetryAfter: the demand that has it may then be admitted.
func (r *refusal) holds(now instant, maxAge time.Duration) (elapsed time.Duration, ok bool) {
	elapsed = time.Duration(now.at-r.sent.at) * time.Microsecond
	// After a clock has stepped back the server may decide otherwise.
	return elapsed, elapsed >= 0 && elapsed < r.ends && now.since-r.sent.since < maxAge
}

// results sets out to the results of r after elapsed.
func (r *refusal) results(out []driver.Result, elapsed time.Duration) {
	for i := range r.answers {
		res := &out[i]
		*res = r.answers[i].result
		res.Source = driver.SourceCache
		res.RetryAfter = max(0, res.RetryAfter-elapsed)
		res.ResetAfter = max(0, res.ResetAfter-elapsed)
	}
}
