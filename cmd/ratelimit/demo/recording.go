package demo

import (
	"fmt"
	"slices"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
)

// windows is how many windows a run records.
const windows = 5

// bursts are the instants of the bursts, in hundredths of a window from the start. The start is
// half a window after an edge, so edges are at 50, 150, 250, 350 and 450.
//
// The first three show what is admitted beyond the limit: the second is just after an edge, and the
// third just before the first leaves the window. At the fourth nothing counts any more, and the
// fifth is more than a window later: an exact log admits as many units of each as the limit.
//
// A burst may take 9 hundredths of a window: it is due at least that long before the edge or the
// end of a window before which it has to end. No burst is due when a token bucket with a limit of
// 20 gets room for another unit: a microsecond would decide what is admitted.
var bursts = []int64{35, 56, 126, 255, 367}

// recording is a run so far. Instants are in µs since the Unix epoch, on the store's clock.
type recording struct {
	limit        ratelimit.Limit
	burst        int      // units of a burst: more than the limit
	series       []series // the last is that of the exact log
	start, until int64    // when the run began, and until when it is recorded
}

func newRecording(limit ratelimit.Limit) recording {
	l := limit
	l.Name = "demo"
	return recording{
		limit: limit,
		burst: int(limit.Max + (limit.Max+3)/4),
		series: []series{
			{name: "Fixed window", algorithm: algorithm.FixedWindow(l)},
			{name: "Sliding window counter", algorithm: algorithm.SlidingWindowCounter(l)},
			{name: "Token bucket", algorithm: algorithm.GCRA(l)},
			{name: "Exact log", algorithm: algorithm.SlidingLog(l)},
		},
	}
}

func (r *recording) duration() time.Duration { return windows * r.limit.Window }

func (r *recording) elapsed() time.Duration {
	return time.Duration(max(0, r.until-r.start)) * time.Microsecond
}

// burstAt returns the instant at which a burst is due.
func (r *recording) burstAt(i int) int64 {
	return r.start + r.limit.Window.Microseconds()*bursts[i]/100
}

// crowded reports whether a label has more room on the left of a burst than between it and the
// next.
func crowded(burst int) bool {
	return burst+1 < len(bursts) && bursts[burst+1]-bursts[burst] < 50
}

// edges returns the instants at which a window of fixed windows begins.
func (r *recording) edges() []int64 {
	window := r.limit.Window.Microseconds()
	edges := make([]int64, windows)
	for i := range edges {
		edges[i] = r.start + window - window/2 + window*int64(i)
	}
	return edges
}

// quotient returns units as a multiple of the limit.
func (r *recording) quotient(units int) string {
	return fmt.Sprintf("%.2f", float64(units)/float64(r.limit.Max))
}

// check returns an error if the exact log is not exact.
func (r *recording) check() error {
	exact := &r.series[len(r.series)-1]
	if most := exact.most(r.limit.Window); int64(most) > r.limit.Max {
		return fmt.Errorf("the exact log admitted %d units within %v: its limit is %d",
			most, r.limit.Window, r.limit.Max)
	}
	return nil
}

// series is what one algorithm decided.
type series struct {
	name      string
	algorithm ratelimit.Algorithm
	attempts  []attempt
	admitted  []int64 // the instants of the admissions, in order
}

// An attempt is a take of one unit.
type attempt struct {
	burst    int // index of bursts
	at       int64
	admitted bool
}

func (s *series) add(a attempt) {
	s.attempts = append(s.attempts, a)
	if a.admitted {
		i, _ := slices.BinarySearch(s.admitted, a.at+1)
		s.admitted = slices.Insert(s.admitted, i, a.at)
	}
}

// trailing returns the number of units admitted in the window that ends with t.
func (s *series) trailing(t int64, window time.Duration) int {
	from, _ := slices.BinarySearch(s.admitted, t-window.Microseconds()+1)
	to, _ := slices.BinarySearch(s.admitted, t+1)
	return to - from
}

// mostIn returns the most units admitted in any window that ends in [from, to).
func (s *series) mostIn(from, to int64, window time.Duration) int {
	most := s.trailing(from, window)
	first, _ := slices.BinarySearch(s.admitted, from)
	last, _ := slices.BinarySearch(s.admitted, to)
	for _, at := range s.admitted[first:last] { // the count grows only at an admission
		most = max(most, s.trailing(at, window))
	}
	return most
}

// most returns the most units admitted in any window.
func (s *series) most(window time.Duration) int {
	if len(s.admitted) == 0 {
		return 0
	}
	return s.mostIn(s.admitted[0], s.admitted[len(s.admitted)-1]+1, window)
}

// wrong returns how many units were refused that an exact log with the same admissions would have
// admitted.
func (s *series) wrong(limit ratelimit.Limit) (n int) {
	for _, a := range s.attempts {
		if !a.admitted && int64(s.trailing(a.at, limit.Window)) < limit.Max {
			n++
		}
	}
	return n
}

// ofBurst returns how many units of a burst were offered, and how many were admitted.
func (s *series) ofBurst(i int) (offered, admitted int) {
	for _, a := range s.attempts {
		if a.burst == i {
			offered++
			if a.admitted {
				admitted++
			}
		}
	}
	return offered, admitted
}
