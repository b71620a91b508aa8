package server

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit"
	"github.com/truewindow/ratelimit/algorithm"
)

var (
	denyLog   = algorithm.SlidingLog(ratelimit.PerHour(10))
	raisedLog = algorithm.SlidingLog(ratelimit.PerHour(20))
)

func denied(key string, n int64) ratelimit.Demand {
	return ratelimit.Demand{Key: key, Algorithm: denyLog, N: n}
}

func refusedFor(retry time.Duration) ratelimit.Result {
	return ratelimit.Result{Limit: 10, RetryAfter: retry, ResetAfter: 2 * retry}
}

// A denyCall is a call that a DenyCache knows of, on its way to a server that the test plays.
type denyCall struct {
	cache  *DenyCache
	groups []Group
	sent   departure
}

// departs sends demands, each a group of its own, whose stored keys are their keys with "stored:" before.
func departs(c *DenyCache, ds ...ratelimit.Demand) *denyCall {
	call := &denyCall{cache: c}
	for _, d := range ds {
		call.groups = append(call.groups, groupOf(d))
	}
	call.sent = c.depart(call.groups)
	return call
}

// groupOf makes one group of ds.
func groupOf(ds ...ratelimit.Demand) Group {
	g := Group{Demands: ds, Times: 1, Results: make([]ratelimit.Result, len(ds))}
	for _, d := range ds {
		g.Keys = append(g.Keys, "stored:"+d.Key)
	}
	return g
}

// arrives answers the first demand of each group.
func (call *denyCall) arrives(results ...ratelimit.Result) {
	for i, res := range results {
		call.groups[i].Results[0] = res
	}
	call.cache.arrive(call.groups, call.sent, func(int) bool { return false })
}

// refuse has the server refuse d for so long.
func refuse(c *DenyCache, d ratelimit.Demand, retry time.Duration) {
	departs(c, d).arrives(refusedFor(retry))
}

func cached(c *DenyCache, d ratelimit.Demand) bool {
	_, ok := c.Lookup(d)
	return ok
}

func (c *DenyCache) wantStats(t *testing.T, want CacheStats) {
	t.Helper()
	got := c.Stats()
	want.Enabled = true
	if want.Entries > 0 && got.Bytes >= want.Entries*placeBytes {
		want.Bytes = got.Bytes
	}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// checkEmpty holds that nothing is left in either map.
func (c *DenyCache) checkEmpty(t *testing.T) {
	t.Helper()
	places, states := 0, 0
	for i := range c.places {
		places += len(c.places[i].places)
		states += len(c.states[i].places)
	}
	if s := c.Stats(); places != 0 || states != 0 || s.Entries != 0 || s.Bytes != 0 {
		t.Errorf("%d places, %d states, %d entries, %d bytes are left", places, states, s.Entries, s.Bytes)
	}
}

// TestDenyCacheGivesAgain holds which demands a refusal answers, and how.
func TestDenyCacheGivesAgain(t *testing.T) {
	now := int64(1_000_000)
	c := NewDenyCache(CacheOptions{}, func() int64 { return now })
	res := refusedFor(time.Second)
	res.Remaining, res.At = 2, 77
	call := departs(c, denied("k", 3))
	now += 400 // on the way
	call.arrives(res)

	now += 600
	want := res
	want.Source, want.RetryAfter, want.ResetAfter = ratelimit.SourceCache, res.RetryAfter-time.Millisecond, res.ResetAfter-time.Millisecond
	for _, n := range []int64{3, 4, ratelimit.MaxUnits} {
		if got, ok := c.Lookup(denied("k", n)); !ok || got != want {
			t.Errorf("%d units: %+v, %t; want %+v", n, got, ok, want)
		}
	}
	other, look, raised := denied("other", 3), denied("k", 3), denied("k", 3)
	look.Op, raised.Algorithm = ratelimit.Look, raisedLog
	for what, d := range map[string]ratelimit.Demand{"fewer units": denied("k", 2), "other key": other, "look": look, "raised limit": raised} {
		if cached(c, d) {
			t.Errorf("%s: answered from the cache", what)
		}
	}
	c.wantStats(t, CacheStats{Refusals: 3, Stored: 1, Entries: 1})
}

// TestDenyCacheRunsOut holds that a refusal ends with its RetryAfter, counted from its sending, with a clock that steps back, and at MaxAge.
func TestDenyCacheRunsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := int64(1_000_000)
		c := NewDenyCache(CacheOptions{MaxAge: time.Minute}, func() int64 { return now })
		refuse(c, denied("k", 1), time.Second)
		for _, tt := range []struct {
			at   int64
			want bool
		}{{999_999, false}, {1_000_000, true}, {1_999_999, true}, {2_000_000, false}, {1_500_000, true}} {
			if now = tt.at; cached(c, denied("k", 1)) != tt.want {
				t.Errorf("at %d: answered from the cache %t", tt.at, !tt.want)
			}
		}
		time.Sleep(time.Minute - time.Nanosecond)
		if !cached(c, denied("k", 1)) {
			t.Error("too old before MaxAge")
		}
		time.Sleep(time.Nanosecond)
		if cached(c, denied("k", 1)) {
			t.Error("not too old at MaxAge")
		}
	})
	synctest.Test(t, func(t *testing.T) { // by the process's own clock
		c := NewDenyCache(CacheOptions{}, nil)
		call := departs(c, denied("k", 1))
		time.Sleep(100 * time.Millisecond)
		call.arrives(refusedFor(time.Second))
		time.Sleep(900*time.Millisecond - time.Microsecond)
		if res, ok := c.Lookup(denied("k", 1)); !ok || res.RetryAfter != time.Microsecond || res.ResetAfter != time.Second+time.Microsecond {
			t.Errorf("%+v, %t", res, ok)
		}
		time.Sleep(time.Microsecond)
		if cached(c, denied("k", 1)) {
			t.Error("given after its RetryAfter")
		}
		refuse(c, denied("k", 1), time.Hour)
		time.Sleep(defaultMaxAge)
		if cached(c, denied("k", 1)) {
			t.Errorf("given after %v", defaultMaxAge)
		}
		if refuse(c, denied("k", 2), time.Hour); !cached(c, denied("k", 2)) {
			t.Error("a refusal that is too old keeps out one for more units")
		}
	})
}

// TestDenyCacheShortWaits holds that a refusal is not kept whose time is up within two trips to the server.
func TestDenyCacheShortWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewDenyCache(CacheOptions{}, nil)
		for _, tt := range []struct {
			key   string
			retry time.Duration
			want  bool
		}{{"short", 20*time.Millisecond - time.Microsecond, false}, {"long", 20 * time.Millisecond, true}} {
			call := departs(c, denied(tt.key, 1))
			time.Sleep(10 * time.Millisecond)
			call.arrives(refusedFor(tt.retry))
			if cached(c, denied(tt.key, 1)) != tt.want {
				t.Errorf("%s: cached %t", tt.key, !tt.want)
			}
		}
		c.wantStats(t, CacheStats{Refusals: 1, Stored: 1, Entries: 1})
	})
}

// TestDenyCachePoisoned holds that a refusal is not kept when anything has taken its place away before it came, nor that of a call that
// was under way at the same time.
func TestDenyCachePoisoned(t *testing.T) {
	d := denied("k", 1)
	for what, change := range map[string]func(c *DenyCache){
		"told by the server": func(c *DenyCache) { c.Invalidate("stored:k") },
		"flush":              func(c *DenyCache) { c.Flush() },
		"own reset": func(c *DenyCache) {
			departs(c, ratelimit.Demand{Key: "k", Algorithm: denyLog, Op: ratelimit.Reset}).arrives(ratelimit.Result{Allowed: true})
		},
		"own admission":   func(c *DenyCache) { departs(c, d).arrives(ratelimit.Result{Allowed: true}) },
		"unknown outcome": func(c *DenyCache) { call := departs(c, d); c.lose(call.groups) },
	} {
		t.Run(what, func(t *testing.T) {
			c := NewDenyCache(CacheOptions{}, nil)
			first, second := departs(c, d), departs(c, d)
			change(c)
			after := departs(c, d)
			first.arrives(refusedFor(time.Hour))
			second.arrives(refusedFor(time.Hour))
			if s := c.Stats(); cached(c, d) || s.Stored != 0 || s.Poisoned != 2 {
				t.Errorf("kept: %+v", s)
			}
			after.arrives(refusedFor(time.Hour))
			if s := c.Stats(); !cached(c, d) || s.Stored != 1 || s.Poisoned != 2 || s.Entries != 1 {
				t.Errorf("what was asked for after the change is not kept: %+v", s)
			}
			c.Flush()
			c.checkEmpty(t)
		})
	}
}

// TestDenyCacheFreeing holds that nothing is kept that was asked for while a demand was under way that may free units: others may have seen
// what it did.
func TestDenyCacheFreeing(t *testing.T) {
	d := denied("k", 1)
	for _, op := range []ratelimit.Op{ratelimit.Reset, ratelimit.GiveBack} {
		for what, end := range map[string]func(c *DenyCache, call *denyCall){
			"answered": func(_ *DenyCache, call *denyCall) { call.arrives(ratelimit.Result{Allowed: true}) },
			"lost":     func(c *DenyCache, call *denyCall) { c.lose(call.groups) },
		} {
			c := NewDenyCache(CacheOptions{}, nil)
			freeing := departs(c, ratelimit.Demand{Key: "k", Algorithm: denyLog, Op: op, N: 1, At: 1})
			departs(c, d).arrives(refusedFor(time.Hour))
			if s := c.Stats(); cached(c, d) || s.Stored != 0 || s.Entries != 0 {
				t.Errorf("kept during a %v: %+v", op, s)
			}
			end(c, freeing)
			departs(c, d).arrives(refusedFor(time.Hour))
			if !cached(c, d) {
				t.Errorf("not kept after a %v was %s", op, what)
			}
			c.Flush()
			c.checkEmpty(t)
			if n := len(c.stateShard("stored:k").freeing); n != 0 {
				t.Errorf("%d states are counted as being freed", n)
			}
		}
	}
}

// TestDenyCacheDrops holds what takes a cached refusal away.
func TestDenyCacheDrops(t *testing.T) {
	d := denied("k", 5)
	op := func(op ratelimit.Op) ratelimit.Demand {
		return ratelimit.Demand{Key: "k", Algorithm: raisedLog, Op: op, N: 1, At: 1}
	}
	admitted := ratelimit.Result{Allowed: true}
	answered := func(d ratelimit.Demand, res ratelimit.Result) func(c *DenyCache) {
		return func(c *DenyCache) { departs(c, d).arrives(res) }
	}
	all := func(allowed ...bool) func(*DenyCache) {
		return func(c *DenyCache) {
			groups := []Group{groupOf(denied("other", 1), op(ratelimit.Take))}
			sent := c.depart(groups)
			for i := range allowed {
				groups[0].Results[i].Allowed = allowed[i]
			}
			c.arrive(groups, sent, func(int) bool { return false })
		}
	}
	failed := func(d ratelimit.Demand) func(*DenyCache) {
		return func(c *DenyCache) {
			call := departs(c, d)
			call.groups[0].Err = ratelimit.ErrCorruptState
			call.arrives()
		}
	}
	for _, tt := range []struct {
		what string
		act  func(*DenyCache)
		kept bool
	}{
		{"nothing", func(*DenyCache) {}, true},
		{"told by the server", func(c *DenyCache) { c.Invalidate("stored:k") }, false},
		{"told of another", func(c *DenyCache) { c.Invalidate("stored:k2") }, true},
		{"flush", (*DenyCache).Flush, false},
		{"close", (*DenyCache).Close, false},
		{"reset sent", func(c *DenyCache) { departs(c, op(ratelimit.Reset)) }, false},
		{"giveback", answered(op(ratelimit.GiveBack), admitted), false},
		{"force", answered(op(ratelimit.Force), admitted), false},
		{"look", answered(op(ratelimit.Look), admitted), true},
		{"admission under another limit", answered(op(ratelimit.Take), admitted), false},
		{"admission of another key", answered(denied("k2", 1), admitted), true},
		{"refusal under another limit", answered(op(ratelimit.Take), refusedFor(time.Hour)), true},
		{"TakeAll admitted", all(true, true), false},
		{"TakeAll refused", all(false, true), true},
		{"answer lost", func(c *DenyCache) { c.lose(departs(c, op(ratelimit.Take)).groups) }, false},
		{"TakeAll lost", func(c *DenyCache) {
			groups := []Group{groupOf(denied("other", 1), op(ratelimit.Take))}
			c.depart(groups)
			c.lose(groups)
		}, false},
		{"look lost", func(c *DenyCache) { c.lose(departs(c, op(ratelimit.Look)).groups) }, false},
		{"corrupt state", failed(op(ratelimit.Take)), false},
		{"refusal that wrote", func(c *DenyCache) {
			call := departs(c, denied("other", 1), op(ratelimit.Take))
			call.groups[0].Results[0], call.groups[1].Results[0] = refusedFor(time.Hour), refusedFor(time.Hour)
			c.arrive(call.groups, call.sent, func(group int) bool { return group == 1 })
			if !cached(c, denied("other", 1)) {
				t.Error("the refusal that did not write is not cached")
			}
			if cached(c, op(ratelimit.Take)) {
				t.Error("the refusal that wrote is cached")
			}
		}, false},
	} {
		t.Run(tt.what, func(t *testing.T) {
			c := NewDenyCache(CacheOptions{}, nil)
			refuse(c, d, time.Hour)
			tt.act(c)
			if cached(c, d) != tt.kept {
				t.Errorf("kept %t", !tt.kept)
			}
			for _, key := range []string{"stored:k", "stored:k2", "stored:other"} {
				c.Invalidate(key)
			}
			c.checkEmpty(t)
		})
	}
}

// TestDenyCacheReplaces holds which of two refusals of one demand stays: the newer, but for one that is for more units while the older holds.
func TestDenyCacheReplaces(t *testing.T) {
	type answer struct {
		n     int64
		after int64 // µs since the one before was sent
		retry time.Duration
	}
	for _, tt := range []struct {
		what          string
		first, second answer
		least         int64 // units for which the cache answers afterwards
		stored        int64
	}{
		{"newer", answer{3, 0, time.Second}, answer{3, 10, time.Minute}, 3, 2},
		{"fewer units", answer{3, 0, time.Minute}, answer{1, 10, time.Second}, 1, 2},
		{"more units", answer{3, 0, time.Second}, answer{5, 10, time.Minute}, 3, 1},
		{"more units, when the older has run out", answer{3, 0, time.Second}, answer{5, 1_000_000, time.Minute}, 5, 2},
		{"more units, just before", answer{3, 0, time.Second}, answer{5, 999_999, time.Minute}, 3, 1},
		{"more units, after the clock stepped back", answer{3, 0, time.Second}, answer{5, -1, time.Minute}, 5, 2},
	} {
		t.Run(tt.what, func(t *testing.T) {
			now := int64(1_000_000)
			c := NewDenyCache(CacheOptions{}, func() int64 { return now })
			refuse(c, denied("k", tt.first.n), tt.first.retry)
			now += tt.second.after
			refuse(c, denied("k", tt.second.n), tt.second.retry)
			if s := c.Stats(); s.Stored != tt.stored || s.Entries != 1 {
				t.Errorf("%+v", s)
			}
			if !cached(c, denied("k", tt.least)) || tt.least > 1 && cached(c, denied("k", tt.least-1)) {
				t.Errorf("it does not answer from %d units on", tt.least)
			}
		})
	}
}

// TestDenyCacheBounds asks for more than there is room for: the bounds hold, others give way, and what is on its way does not.
func TestDenyCacheBounds(t *testing.T) {
	size := func(key string) int64 { return (&place{question: question{key: key}, stored: "stored:" + key}).size() }
	for _, tt := range []struct {
		what string
		opts CacheOptions
		room int
	}{
		{"entries", CacheOptions{MaxEntries: 100}, 100},
		{"one entry", CacheOptions{MaxEntries: 1}, 1},
		{"bytes", CacheOptions{MaxBytes: int(50*size("k0000") + 1)}, 50},
		{"no room at all", CacheOptions{MaxBytes: int(size("k0000") - 1)}, 0},
	} {
		t.Run(tt.what, func(t *testing.T) {
			c := NewDenyCache(tt.opts, nil)
			for i := range 1000 {
				d := denied(fmt.Sprintf("k%04d", i), 1)
				refuse(c, d, time.Hour)
				if cached(c, d) != (tt.room > 0) {
					t.Fatalf("refusal %d: cached %t", i, tt.room == 0)
				}
				if s := c.Stats(); s.Entries != int64(min(i+1, tt.room)) || s.Bytes != s.Entries*size("k0000") {
					t.Fatalf("after %d refusals: %+v", i+1, s)
				}
			}
			c.Flush()
			c.checkEmpty(t)
		})
	}
	t.Run("all on their way", func(t *testing.T) {
		c := NewDenyCache(CacheOptions{MaxEntries: 3}, nil)
		calls := departs(c, denied("a", 1), denied("b", 1), denied("c", 1))
		late := departs(c, denied("late", 1))
		late.arrives(refusedFor(time.Hour))
		calls.arrives(refusedFor(time.Hour), refusedFor(time.Hour), refusedFor(time.Hour))
		if cached(c, denied("late", 1)) || !cached(c, denied("a", 1)) || !cached(c, denied("b", 1)) || !cached(c, denied("c", 1)) {
			t.Error("a place was taken away while its call was under way")
		}
		refuse(c, denied("late", 1), time.Hour)
		if s := c.Stats(); !cached(c, denied("late", 1)) || s.Entries != 3 {
			t.Errorf("nothing gave way: %+v", s)
		}
	})
	t.Run("a key that never fits", func(t *testing.T) {
		c := NewDenyCache(CacheOptions{MaxBytes: 10_000}, nil)
		refuse(c, denied("k", 1), time.Hour)
		long := denied(string(make([]byte, 10_000)), 1)
		refuse(c, long, time.Hour)
		if cached(c, long) || !cached(c, denied("k", 1)) {
			t.Error("others gave way for nothing")
		}
	})
}

// TestDenyCacheLeavesNothing holds that calls without a refusal leave no place behind.
func TestDenyCacheLeavesNothing(t *testing.T) {
	c := NewDenyCache(CacheOptions{}, nil)
	d := denied("k", 1)
	departs(c, d).arrives(refusedFor(0)) // too short
	c.checkEmpty(t)
	c.lose(departs(c, d).groups)
	c.checkEmpty(t)
	raised := denied("k", 1)
	raised.Algorithm = raisedLog
	refuse(c, raised, time.Hour) // another place of the same state
	first, second := departs(c, d), departs(c, d)
	first.arrives(refusedFor(0))
	second.arrives(refusedFor(0))
	c.wantStats(t, CacheStats{Stored: 1, Entries: 1})
	if !cached(c, raised) {
		t.Error("the other place went too")
	}
	c.Invalidate("stored:k")
	c.checkEmpty(t)
	call := departs(c, d)
	call.groups[0].Err = errors.New("corrupt")
	call.arrives()
	c.checkEmpty(t)
}

// TestDenyCacheClosed holds that a closed cache answers nothing and keeps nothing.
func TestDenyCacheClosed(t *testing.T) {
	c := NewDenyCache(CacheOptions{}, nil)
	refuse(c, denied("k", 1), time.Hour)
	call := departs(c, denied("other", 1))
	c.Close()
	call.arrives(refusedFor(time.Hour))
	refuse(c, denied("k", 1), time.Hour)
	if cached(c, denied("k", 1)) || cached(c, denied("other", 1)) {
		t.Error("a closed cache answers")
	}
	c.Close()
	c.checkEmpty(t)
}

// TestNoDenyCache holds that a store without a cache needs to know nothing of it.
func TestNoDenyCache(t *testing.T) {
	var c *DenyCache
	refuse(c, denied("k", 1), time.Hour)
	c.lose(departs(c, denied("k", 1)).groups)
	c.Close()
	if cached(c, denied("k", 1)) || c.Stats() != (CacheStats{}) {
		t.Error("it keeps something")
	}
}

// TestDenyCacheRaces plays a server whose states change while answers are on their way. A state has a version, which a refusal bears in
// At: once the server has told of a change, no refusal from before may be given. Bounds hold at every moment, and in the end nothing is left.
func TestDenyCacheRaces(t *testing.T) {
	const keys, rounds = 40, 4000
	c := NewDenyCache(CacheOptions{MaxEntries: 30}, nil)
	var version, told [keys]atomic.Int64
	var wg sync.WaitGroup
	for worker := range uint64(8) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(worker, 1))
			for range rounds {
				k := r.IntN(keys)
				d := denied(fmt.Sprint(k), r.Int64N(3)+1)
				if r.IntN(4) == 0 {
					d.Algorithm = raisedLog
				}
				before := told[k].Load()
				if res, ok := c.Lookup(d); ok {
					if res.At < before {
						t.Errorf("a refusal of version %d was given when %d had been told", res.At, before)
						return
					}
					continue
				}
				call := departs(c, d)
				res := refusedFor(time.Hour)
				res.At = version[k].Load()
				res.Allowed = r.IntN(50) == 0
				if r.IntN(50) == 0 {
					c.lose(call.groups)
					continue
				}
				call.arrives(res)
			}
		})
	}
	stop := make(chan struct{})
	var server sync.WaitGroup
	for worker := range uint64(2) {
		server.Go(func() {
			r := rand.New(rand.NewPCG(worker, 2))
			for {
				select {
				case <-stop:
					return
				default:
				}
				k := r.IntN(keys)
				v := version[k].Add(1)
				if r.IntN(100) == 0 {
					c.Flush()
				} else {
					c.Invalidate(fmt.Sprint("stored:", k))
				}
				for old := told[k].Load(); old < v && !told[k].CompareAndSwap(old, v); {
					old = told[k].Load()
				}
				if s := c.Stats(); s.Entries > 30 || s.Entries < 0 || s.Bytes < 0 {
					t.Errorf("%+v", s)
					return
				}
			}
		})
	}
	wg.Wait()
	close(stop)
	server.Wait()
	if s := c.Stats(); s.Refusals == 0 || s.Stored == 0 || s.Poisoned == 0 {
		t.Errorf("%+v: this test proves nothing", s)
	}
	c.Flush()
	c.checkEmpty(t)
}

// TestDenyCacheClosedMeanwhile closes a cache while a refusal comes: nothing stays behind.
func TestDenyCacheClosedMeanwhile(t *testing.T) {
	for range 5000 {
		c := NewDenyCache(CacheOptions{}, nil)
		var start, done sync.WaitGroup
		start.Add(2)
		for _, act := range []func(){func() { departs(c, denied("k", 1)) }, c.Close} {
			done.Go(func() {
				start.Done()
				start.Wait()
				act()
			})
		}
		done.Wait()
		c.checkEmpty(t)
		if t.Failed() {
			return
		}
	}
}

// TestAddWithin holds that a bound is kept by those who add at the same time.
func TestAddWithin(t *testing.T) {
	const bound = 3
	var sum atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20_000 {
				if !addWithin(&sum, 1, bound) {
					continue
				}
				if n := sum.Load(); n > bound {
					t.Errorf("%d, at most %d", n, bound)
				}
				sum.Add(-1)
			}
		})
	}
	wg.Wait()
	if n := sum.Load(); n != 0 {
		t.Errorf("%d are left", n)
	}
}

// TestLookupAllocatesNothing is about what a refused client costs.
func TestLookupAllocatesNothing(t *testing.T) {
	c := NewDenyCache(CacheOptions{}, nil)
	d := denied("k", 1)
	refuse(c, d, time.Hour)
	for what, d := range map[string]ratelimit.Demand{"hit": d, "miss": denied("other", 1)} {
		if n := testing.AllocsPerRun(100, func() { c.Lookup(d) }); n != 0 {
			t.Errorf("%s: %v allocations", what, n)
		}
	}
}

// FuzzInvalidate has a server tell of changes of any states, between refusals: what it names is forgotten, nothing else is, and the bounds hold.
func FuzzInvalidate(f *testing.F) {
	f.Add("abcabc", []byte("stored:a"), uint8(0))
	f.Add("abcdefgh", []byte("stored:"), uint8(3))
	f.Add("\x00\xff", []byte{}, uint8(1))
	f.Add("aa", []byte("rl:{=a}:1h0m0s:log1"), uint8(255))
	f.Fuzz(func(t *testing.T, keys string, told []byte, bound uint8) {
		c := NewDenyCache(CacheOptions{MaxEntries: 1 + int(bound)}, nil)
		for i := range len(keys) {
			refuse(c, denied(keys[i:i+1], 1), time.Hour)
		}
		was := make(map[string]bool)
		for i := range len(keys) {
			was[keys[i:i+1]] = cached(c, denied(keys[i:i+1], 1))
		}
		c.Invalidate(string(told))
		for key := range was {
			if now, want := cached(c, denied(key, 1)), was[key] && "stored:"+key != string(told); now != want {
				t.Fatalf("%q is cached: %t, after %q", key, now, told)
			}
		}
		if s := c.Stats(); s.Entries > 1+int64(bound) || s.Pushes != 1 {
			t.Fatalf("%+v", s)
		}
		c.Flush()
		c.checkEmpty(t)
	})
}

func BenchmarkLookup(b *testing.B) {
	c := NewDenyCache(CacheOptions{MaxAge: time.Hour}, nil)
	refuse(c, denied("hit", 1), time.Hour)
	for _, key := range []string{"hit", "miss"} {
		d := denied(key, 1)
		b.Run(key, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.Lookup(d)
			}
		})
		b.Run(key+"/goroutines=64", func(b *testing.B) {
			b.ReportAllocs()
			var wg sync.WaitGroup
			for range 64 {
				wg.Go(func() {
					for range b.N / 64 {
						c.Lookup(d)
					}
				})
			}
			wg.Wait()
		})
	}
}
