package demo

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	memorystore "github.com/truewindow/ratelimit/backend/memory"
	"github.com/truewindow/ratelimit/driver"
)

// record makes a run on a memory store whose clock is ahead of this process's. Call it in a
// synctest bubble, where it takes no time.
func record(t *testing.T, limit ratelimit.Limit, ahead time.Duration) *recording {
	t.Helper()
	store, err := memorystore.New(&memorystore.Options{Now: func() int64 {
		return time.Now().
			Add(ahead).UnixMicro()
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	traffic, err := newTraffic(t.Context(), limit, store)
	if err != nil {
		t.Fatal(err)
	}
	if err := traffic.run(t.Context(), func() {}); err != nil {
		t.Fatal(err)
	}
	if n := store.Stats().Keys; n != 0 {
		t.Errorf("the run left %d states behind", n)
	}
	return &traffic.recording
}

// TestTraffic checks what each algorithm admits of each burst, whatever the store's clock says.
func TestTraffic(t *testing.T) {
	for _, test := range []struct {
		limit    ratelimit.Limit
		admitted [4][]int // by series
		most     [4]int
		wrong    int // of the counter; of the others none
	}{
		{ratelimit.Limit{Max: 20, Window: 2 * time.Second},
			[4][]int{{20, 20, 0, 20, 20}, {20, 1, 14, 20, 3}, {20, 4, 14, 20, 20},
				{20, 0, 0, 20, 20}}, [4]int{40, 35, 38, 20}, 22},
		{ratelimit.Limit{Max: 1, Window: time.Minute},
			[4][]int{{1, 1, 0, 1, 1}, {1, 0, 0, 1, 0}, {1, 0, 0, 1, 1}, {1, 0, 0, 1, 1}},
			[4]int{2, 1, 1, 1}, 2},
		{ratelimit.Limit{Max: 7, Window: 333_300 * time.Microsecond},
			[4][]int{{7, 7, 0, 7, 7}, {7, 0, 5, 7, 1}, {7, 1, 5, 7, 7}, {7, 0, 0, 7, 7}},
			[4]int{14, 12, 13, 7}, 8},
	} {
		for _, ahead := range []time.Duration{0, time.Hour + 7*time.Millisecond,
			-77 * time.Millisecond} {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(rand.N(test.limit.Window)) // a run may begin at any time
				r := record(t, test.limit, ahead)
				checkInstants(t, r)
				for i := range r.series {
					s, wrong := &r.series[i], 0
					if i == 1 {
						wrong = test.wrong
					}
					if got := s.most(r.limit.Window); got != test.most[i] {
						t.Errorf("%v: at most %d of the %s in a window, want %d",
							r.limit, got, s.name, test.most[i])
					}
					if got := s.wrong(r.limit); got != wrong {
						t.Errorf("%v: %d of the %s refused wrongly", r.limit, got, s.name)
					}
					for burst, want := range test.admitted[i] {
						if offered, got := s.ofBurst(burst); got != want || offered != r.burst ||
							offered <= int(r.limit.Max) {
							t.Errorf("%v, burst %d: %d of %d of the %s, want %d",
								r.limit, burst, got, offered, s.name, want)
						}
					}
				}
				if err := r.check(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

func checkInstants(t *testing.T, r *recording) {
	t.Helper()
	window := r.limit.Window.Microseconds()
	for _, edge := range r.edges() {
		if edge%window != 0 || edge < r.start || edge >= r.start+windows*window {
			t.Errorf("%v: %d is no edge of the run", r.limit, edge)
		}
	}
	for _, s := range r.series {
		if !slices.IsSorted(s.admitted) {
			t.Errorf("%v: the admissions of the %s are out of order", r.limit, s.name)
		}
		for _, a := range s.attempts {
			// the instants are cut to µs
			if late := a.at - r.burstAt(a.burst); late < -1 || late > 1 {
				t.Fatalf("%v, burst %d: the %s got it %dµs late", r.limit, a.burst, s.name, late)
			}
		}
	}
}

// TestDistantStore checks that bursts do not arrive early where some of the requests that read the
// clock took longer than others.
func TestDistantStore(t *testing.T) {
	for first := range int64(3) { // of the requests that take less
		synctest.Test(t, func(t *testing.T) {
			memory, err := memorystore.New(nil)
			if err != nil {
				t.Fatal(err)
			}
			defer memory.Close()
			store := &distant{Store: memory, slow: 30 * time.Millisecond}
			store.calls.Store(first)
			traffic, err := newTraffic(t.Context(), ratelimit.PerSecond("second", 20), store)
			if err != nil {
				t.Fatal(err)
			}
			store.slow = fast
			if err := traffic.run(t.Context(), func() {}); err != nil {
				t.Fatal(err)
			}
			checkInstants(t, &traffic.recording)
		})
	}
}

// fast is how long every third request to a distant store takes to arrive.
const fast = 5 * time.Millisecond

type distant struct {
	ratelimit.Store
	slow  time.Duration
	calls atomic.Int64
}

func (d *distant) Take(ctx context.Context, demand driver.Demand) (ratelimit.Result, error) {
	d.sleep()
	return d.Store.Take(ctx, demand)
}

func (d *distant) TakeAll(
	ctx context.Context, ds []driver.Demand, out []ratelimit.Result,
) error {
	d.sleep()
	return d.Store.TakeAll(ctx, ds, out)
}

func (d *distant) sleep() {
	if d.calls.Add(1)%3 == 0 {
		time.Sleep(fast)
	} else {
		time.Sleep(d.slow)
	}
}

// TestCachedRefusals checks that a cached refusal is recorded at the time of the call, not at the
// time when it was cached.
func TestCachedRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, err := memorystore.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer memory.Close()
		traffic, err := newTraffic(t.Context(), ratelimit.PerSecond("second", 20), cached{memory})
		if err != nil {
			t.Fatal(err)
		}
		if err := traffic.run(t.Context(), func() {}); err != nil {
			t.Fatal(err)
		}
		checkInstants(t, &traffic.recording)
	})
}

// cached is a store whose refusals come from a cache.
type cached struct{ ratelimit.Store }

func (c cached) TakeAll(ctx context.Context, ds []driver.Demand, out []ratelimit.Result) error {
	err := c.Store.TakeAll(ctx, ds, out)
	if !out[0].Allowed {
		for i := range out {
			out[i].Source, out[i].ResetAfter = ratelimit.SourceCache, out[i].ResetAfter-time.Second
		}
	}
	return err
}

// failing is a store that fails after a number of demands.
type failing struct {
	ratelimit.Store
	left, failed atomic.Int64
}

func (f *failing) TakeAll(
	ctx context.Context, ds []driver.Demand, out []ratelimit.Result,
) error {
	if ds[0].Op == driver.OpTake && f.left.Add(-1) < 0 {
		f.failed.Add(1)
		return ratelimit.ErrUnavailable
	}
	// The failure of another call may have ended ctx since.
	return f.Store.TakeAll(context.WithoutCancel(ctx), ds, out)
}

func TestTrafficWithoutStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, err := memorystore.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		failing := &failing{Store: store}
		const decided = 4*125 + 5
		failing.left.Store(decided)
		limit := ratelimit.Limit{Max: 100, Window: time.Second}
		traffic, err := newTraffic(t.Context(), limit, failing)
		if err != nil {
			t.Fatal(err)
		}
		if err := traffic.run(t.Context(), func() {}); !errors.Is(err, ratelimit.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
		got := 0
		for _, s := range traffic.series {
			got += len(s.attempts)
		}
		if got != decided {
			t.Errorf("%d attempts are recorded", got)
		}
		if got := failing.failed.Load(); got < 1 || got > mostWorkers {
			t.Errorf("the store was called %d times after it had failed", got)
		}
		if want := traffic.burstAt(1); traffic.until < want || traffic.until > want+1 {
			t.Errorf("it ended at %d, want %d", traffic.until, want)
		}
	})
}
