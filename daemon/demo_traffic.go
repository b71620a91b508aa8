package daemon

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/truewindow/ratelimit"
)

const (
	demoWindows = 5                      // windows that a run records
	demoWorkers = 16                     // goroutines that offer a burst to the exact log
	demoTick    = 100 * time.Millisecond // how often progress is shown
)

// demoBursts are the instants of the bursts, in twentieths of a window from the start. The start is
// half a window after an edge, so edges are at 10, 30, 50, 70 and 90. A window takes one burst
// only, or the fixed window would have nothing left to admit at the edge.
var demoBursts = []int64{9, 11, 35, 69, 71, 95}

// An attempt is one unit asked for.
type attempt struct {
	burst    int // index of demoBursts
	at       int64
	admitted bool
}

// series is what one limiter did. Instants are in µs since the Unix epoch.
type series struct {
	name     string
	attempts []attempt
	admitted []int64 // the instants of the admissions, in order
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
	for _, at := range s.admitted[first:last] { // only an admission makes it more
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

// ofBurst returns how many units a burst asked for, and how many were admitted.
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

// recording is a run so far. Instants are in µs since the Unix epoch, on the clock of this process.
type recording struct {
	limit        ratelimit.Limit
	burst        int   // units that a burst asks for: more than the limit
	start, until int64 // when the run began, and how far it has come
	fixed, exact series
}

func (r *recording) both() [2]*series { return [2]*series{&r.fixed, &r.exact} }

func (r *recording) duration() time.Duration { return demoWindows * r.limit.Window }

func (r *recording) elapsed() time.Duration {
	return time.Duration(max(0, r.until-r.start)) * time.Microsecond
}

// burstAt returns the instant at which a burst is due.
func (r *recording) burstAt(i int) int64 {
	return r.start + r.limit.Window.Microseconds()*demoBursts[i]/20
}

// edges returns the instants at which the fixed window starts over.
func (r *recording) edges() []int64 {
	window := r.limit.Window.Microseconds()
	edges := make([]int64, demoWindows)
	for i := range edges {
		edges[i] = r.start + window - window/2 + window*int64(i)
	}
	return edges
}

func (r *recording) quotient(units int) string {
	return fmt.Sprintf("%.2f", float64(units)/float64(r.limit.Max))
}

// check returns an error if the exact log is not exact.
func (r *recording) check() error {
	if most := r.exact.most(r.limit.Window); int64(most) > r.limit.Max {
		return fmt.Errorf("the exact log admitted %d units within %v: its limit is %d",
			most, r.limit.Window, r.limit.Max)
	}
	return nil
}

// fixedWindow is the plain counter that starts over at the edges of the clock.
type fixedWindow struct {
	limit  ratelimit.Limit
	number int64 // of the window
	used   int64
}

func (f *fixedWindow) take(now int64) bool {
	if number := now / f.limit.Window.Microseconds(); number != f.number {
		f.number, f.used = number, 0
	}
	if f.used == f.limit.Max {
		return false
	}
	f.used++
	return true
}

// traffic offers bursts to the two limiters.
type traffic struct {
	recording
	counter fixedWindow
	limiter *ratelimit.Limiter
	key     string
	ahead   int64 // µs by which the store's clock is ahead of ours
}

// newTraffic asks the store whether it decides at all, and for its clock.
func newTraffic(
	ctx context.Context, limit ratelimit.Limit, limiter *ratelimit.Limiter,
) (*traffic, error) {
	t := &traffic{
		recording: recording{
			limit: limit,
			burst: int(limit.Max + (limit.Max+3)/4),
			fixed: series{name: "Fixed window"},
			exact: series{name: "Exact log"},
		},
		counter: fixedWindow{limit: limit},
		limiter: limiter,
		key:     rand.Text(), // of this run alone
	}
	// opens connections, and loads the script
	err := together(ctx, demoWorkers, func(ctx context.Context) error {
		_, err := limiter.Peek(ctx, t.key)
		return err
	})
	if err != nil {
		return nil, err
	}
	before := time.Now().UnixMicro()
	res, err := limiter.Peek(ctx, t.key)
	t.ahead = res.At - (before+time.Now().UnixMicro())/2
	return t, err
}

// run makes all bursts and calls progress now and then. It returns when the record is complete, the
// context has ended or the store does not decide.
func (t *traffic) run(ctx context.Context, progress func()) error {
	defer func() {
		t.until = time.Now().UnixMicro()
		_ = t.limiter.Reset(context.WithoutCancel(ctx), t.key)
	}()
	window := t.limit.Window.Microseconds()
	t.until = time.Now().UnixMicro()
	t.start = (t.until+window/2)/window*window + window/2
	for i := range demoBursts {
		if err := t.sleepUntil(ctx, t.burstAt(i), progress); err != nil {
			return err
		}
		for range t.burst {
			now := time.Now().UnixMicro()
			t.fixed.add(attempt{i, now, t.counter.take(now)})
		}
		if err := t.offerExact(ctx, i); err != nil {
			return err
		}
	}
	return t.sleepUntil(ctx, t.start+t.duration().Microseconds(), progress)
}

// offerExact makes burst i on the exact log, many units at a time.
func (t *traffic) offerExact(ctx context.Context, i int) error {
	var mu sync.Mutex // of t.exact
	return together(ctx, t.burst, func(ctx context.Context) error {
		res, err := t.limiter.Allow(ctx, t.key)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		t.exact.add(attempt{i, res.At - t.ahead, res.Allowed})
		return nil
	})
}

// together makes n calls of f on demoWorkers goroutines. After the first error, which it returns,
// it makes no more.
func together(ctx context.Context, n int, f func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var workers sync.WaitGroup
	var calls atomic.Int64
	for range demoWorkers {
		workers.Go(func() {
			for ctx.Err() == nil && calls.Add(1) <= int64(n) {
				if err := f(ctx); err != nil {
					cancel(err)
				}
			}
		})
	}
	workers.Wait()
	return context.Cause(ctx)
}

// sleepUntil keeps t.until up to date while it sleeps. It returns early, with an error, when the
// context ends.
func (t *traffic) sleepUntil(ctx context.Context, instant int64, progress func()) error {
	for {
		t.until = time.Now().UnixMicro()
		progress()
		left := time.Duration(instant-t.until) * time.Microsecond
		if left <= 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(min(left, demoTick)):
		}
	}
}
