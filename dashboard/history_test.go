package dashboard_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/dashboard"
	"github.com/truewindow/ratelimit/driver"
	"github.com/truewindow/ratelimit/internal/testkit/depth"
	"github.com/truewindow/ratelimit/shadow"
)

// TestNumbers: the numbers of a minute of 2,000 calls a second are exactly those that callers got.
func TestNumbers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := newPage(t, nil)
		limiter := newLimiter(t, newStore(t),
			algorithm.SlidingLog(ratelimit.PerSecond("calls", 40)),
			algorithm.SlidingLog(ratelimit.PerMinute("more", 1500))).WithObserver(page.Observe)
		b := browser{t, page}
		of := make(map[string]*numbers)
		for _, l := range limiter.Limits() {
			of[l.Name] = new(numbers)
		}
		time.Sleep(time.Second / 2) // to between two seconds of the page
		for range 60 * 2000 {
			time.Sleep(time.Second / 2000)
			results, err := ratelimit.AllowAll(t.Context(), ratelimit.Claim{
				Limiter: limiter, Key: fmt.Sprint(rand.IntN(20)), N: 1})
			if err != nil {
				t.Fatal(err)
			}
			admitted := results[0].Allowed && results[1].Allowed
			for _, r := range results {
				switch n := of[r.Limit.Name]; {
				case !r.Allowed:
					n.Refused++
				case admitted:
					n.Admitted++
				}
			}
		}
		time.Sleep(time.Second)
		for name, want := range of {
			got := b.limits()[name]
			if got.Quarter != *want || want.Refused == 0 || want.Admitted == 0 {
				t.Errorf("%s: the page has %+v, callers got %+v", name, got.Quarter, *want)
			}
		}
	})
}

// TestWindows: the last second, minute and 15 minutes have their own decisions, and no others.
func TestWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := newPage(t, nil)
		limit := ratelimit.PerHour("calls", 1<<20)
		limiter := newLimiter(t, newStore(t), algorithm.SlidingLog(limit)).
			WithObserver(page.Observe)
		b := browser{t, page}
		time.Sleep(500 * time.Millisecond)
		for second := range 1000 {
			for range 1 + second%3 {
				if _, err := limiter.Allow(t.Context(), "key"); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Second)
			var want [3]int64
			for i, n := range []int{1, 60, 900} {
				for s := max(0, second-n+1); s <= second; s++ {
					want[i] += int64(1 + s%3)
				}
			}
			got := b.limits()["calls"]
			if [3]int64{got.Second.Admitted, got.Minute.Admitted, got.Quarter.Admitted} != want {
				t.Fatalf("after %d s: %+v, want %v", second+1, got, want)
			}
		}
	})
}

// TestKinds: each outcome counts as what it is.
func TestKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := newPage(t, nil)
		limit := ratelimit.PerHour("calls", 10)
		observe := func(o ratelimit.Observation, res ratelimit.Result) {
			o.Limits, o.Results = []ratelimit.Limit{limit}, []ratelimit.Result{res}
			page.Observe(t.Context(), o)
		}
		allowed := ratelimit.Result{Allowed: true}
		for _, source := range []ratelimit.Source{ratelimit.SourceStore, ratelimit.SourceLocal,
			ratelimit.SourceOpen, ratelimit.SourceLease} {
			observe(ratelimit.Observation{Admitted: true},
				ratelimit.Result{Allowed: true, Source: source})
		}
		observe(ratelimit.Observation{}, ratelimit.Result{Source: ratelimit.SourceCache})
		observe(ratelimit.Observation{Err: errors.New("no")}, ratelimit.Result{})
		observe(ratelimit.Observation{Op: driver.OpForce, Admitted: true}, allowed)
		observe(ratelimit.Observation{Op: driver.OpHold, N: 1, Admitted: true}, allowed)
		observe(ratelimit.Observation{Op: driver.OpPeek}, ratelimit.Result{}) // of a block
		page.Warn(limit)
		// These are no decisions:
		observe(ratelimit.Observation{}, allowed) // another limit refuses
		observe(ratelimit.Observation{Op: driver.OpHold, Admitted: true}, allowed)
		observe(ratelimit.Observation{Op: driver.OpPeek, Admitted: true}, allowed)
		observe(ratelimit.Observation{Op: driver.OpReset, Admitted: true}, allowed)
		observe(ratelimit.Observation{Op: driver.OpSettle, N: 1, Admitted: true}, allowed)
		time.Sleep(2 * time.Second)
		want := numbers{Admitted: 6, Refused: 2, Undecided: 1, Cached: 1, Local: 1, Open: 1,
			Here: 1, Warned: 1}
		if got := (browser{t, page}).limits()["calls"].Minute; got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
}

// TestTrial: a trial shows its own numbers, and where it differs from the live limit.
func TestTrial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := newPage(t, nil)
		observe := func(trial, live bool) {
			page.ObserveShadow(t.Context(), shadow.Observation{
				Observation: ratelimit.Observation{Limits: []ratelimit.Limit{{Name: "trial"}},
					Results: []ratelimit.Result{{Allowed: trial}}, Admitted: trial},
				Live: []ratelimit.Result{{Allowed: live}},
			})
		}
		observe(true, true)
		observe(false, true)
		observe(false, true)
		observe(true, false)
		observe(false, false)
		time.Sleep(2 * time.Second)
		got := browser{t, page}.limits()["trial"]
		want := numbers{Admitted: 2, Refused: 3, Stricter: 2, Looser: 1}
		if got.Minute != want || !got.Trial {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
}

// TestRate: a limit that blocks keys has no rate, and has one if it is replaced by one that does
// not. The page asks for the limits only when somebody reads it.
func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		limiter := newLimiter(t, store, algorithm.Blocking("blocked", time.Hour),
			algorithm.SlidingLog(ratelimit.PerHour("hour", 9)))
		asked := 0
		page := newPage(t, &dashboard.Options{Store: store, Limits: func() []ratelimit.Algorithm {
			asked++
			return limiter.Algorithms()
		}})
		if _, err := limiter.WithObserver(page.Observe).Allow(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if asked > 0 {
			t.Error("nobody reads the page, and it asks for the limits")
		}
		got := browser{t, page}.limits()
		if got["blocked"].Rate != "blocks for at most 1h0m0s" || got["hour"].Rate != "9/1h0m0s" {
			t.Errorf("got %+v", got)
		}
		limiter = newLimiter(t, store, algorithm.SlidingLog(ratelimit.PerHour("blocked", 5)))
		if _, err := limiter.WithObserver(page.Observe).Allow(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		if got := (browser{t, page}).limits()["blocked"].Rate; got != "5/1h0m0s" {
			t.Errorf("the limit that replaces the block is %q", got)
		}
	})
}

// TestBounds: an hour of decisions under ever new limits is a page of 1,001 limits.
func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := newPage(t, nil)
		b := browser{t, page}
		seconds := depth.Of(2000, 3600)
		for i := range seconds {
			page.Observe(context.Background(), ratelimit.Observation{
				Limits:  []ratelimit.Limit{{Name: fmt.Sprint("limit", i)}},
				Results: []ratelimit.Result{{Allowed: true}}, Admitted: true,
			})
			time.Sleep(time.Second)
		}
		time.Sleep(time.Second / 2)
		limits := b.limits()
		if n := limits["_other"].Quarter.Admitted; len(limits) != 1001 || n < 898 || n > 900 {
			t.Errorf("%d limits, the last of which has %d decisions", len(limits), n)
		}
	})
}

// TestObserveAllocations: a decision costs no allocation.
func TestObserveAllocations(t *testing.T) {
	page := newPage(t, nil)
	o := ratelimit.Observation{Limits: []ratelimit.Limit{ratelimit.PerHour("calls", 10)},
		Results: []ratelimit.Result{{Allowed: true}}, Admitted: true}
	page.Observe(t.Context(), o)
	if n := testing.AllocsPerRun(1000, func() { page.Observe(t.Context(), o) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkAllow is a decision without an observer, with one that does nothing, and with the page.
func BenchmarkAllow(b *testing.B) {
	page := newPage(b, nil)
	limiter := newLimiter(b, newStore(b), algorithm.SlidingLog(ratelimit.PerSecond("calls", 100)))
	for _, bb := range []struct {
		name    string
		limiter *ratelimit.Limiter
	}{
		{"bare", limiter},
		{"observed", limiter.WithObserver(func(context.Context, ratelimit.Observation) {})},
		{"page", limiter.WithObserver(page.Observe)},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := bb.limiter.Allow(b.Context(), "key"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
