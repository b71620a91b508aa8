package denycache

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/truewindow/ratelimit/algorithm"
	"github.com/truewindow/ratelimit/backend/internal/batch"
	"github.com/truewindow/ratelimit/backend/serverstore"
	"github.com/truewindow/ratelimit/driver"
)

var (
	denyLog   = algorithm.SlidingLog(driver.PerHour("", 10))
	raisedLog = algorithm.SlidingLog(driver.PerHour("", 20))
)

func denied(key string, n int64) driver.Demand {
	return driver.Demand{Key: key, Algorithm: denyLog, N: n}
}

// other is a demand on another state of key.
func other(key string, n int64) driver.Demand {
	return driver.Demand{
		Key: key, Algorithm: algorithm.SlidingLog(driver.PerDay("other", 100)), N: n}
}

func refusedFor(retry time.Duration) driver.Result {
	return driver.Result{Limit: driver.Limit{Max: 10}, RetryAfter: retry, ResetAfter: 2 * retry}
}

// A request is in flight from a Cache to a server that the test plays.
type request struct {
	cache  *Cache
	groups []batch.Group
	sent   Sent
}

// send sends demands, each a group of its own, whose stored keys are their keys with "stored:"
// before.
func send(c *Cache, ds ...driver.Demand) *request {
	var groups []batch.Group
	for _, d := range ds {
		groups = append(groups, groupOf(d))
	}
	return sendGroups(c, groups...)
}

func sendGroups(c *Cache, groups ...batch.Group) *request {
	for _, g := range groups {
		for i := range g.Demands {
			g.Demands[i].Key = c.CopyKey(g.Demands[i].Key)
		}
	}
	return &request{cache: c, groups: groups, sent: c.Send(groups)}
}

// groupOf makes one group of ds.
func groupOf(ds ...driver.Demand) batch.Group {
	g := batch.Group{Demands: slices.Clone(ds), Results: make([]driver.Result, len(ds))}
	for _, d := range ds {
		g.Keys = append(g.Keys, "stored:"+d.Key+d.Algorithm.Limit().Name)
	}
	return g
}

// reply answers the demands of all groups, and returns the recheck that follows.
func (r *request) reply(results ...driver.Result) *Recheck {
	for i := range r.groups {
		results = results[copy(r.groups[i].Results, results):]
	}
	return r.cache.Receive(r.sent, r.groups)
}

// fill answers the peeks of a recheck.
func (c *Cache) fill(l *Recheck, results ...driver.Result) {
	for i := range l.Groups {
		results = results[copy(l.Groups[i].Results, results):]
	}
	c.Fill(l, true)
}

// recheck has the server refuse d, and returns the recheck that follows.
func (c *Cache) recheck(d driver.Demand) *Recheck {
	return send(c, d).reply(refusedFor(time.Hour))
}

// refuse has the server refuse d for so long, and the recheck that follows find the same.
func refuse(c *Cache, d driver.Demand, retry time.Duration) {
	if l := send(c, d).reply(refusedFor(retry)); l != nil {
		c.fill(l, refusedFor(retry))
	}
}

func cached(c *Cache, ds ...driver.Demand) bool {
	return c.Lookup(ds, make([]driver.Result, len(ds)))
}

func lookup(c *Cache, d driver.Demand) (driver.Result, bool) {
	var out [1]driver.Result
	ok := c.Lookup([]driver.Demand{d}, out[:])
	return out[0], ok
}

func (c *Cache) wantStats(t *testing.T, want serverstore.CacheStats) {
	t.Helper()
	got := c.Stats()
	want.Enabled = true
	if want.Entries > 0 && got.Bytes >= want.Entries*entryBytes {
		want.Bytes = got.Bytes
	}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// checkEmpty fails if anything is left in an index.
func (c *Cache) checkEmpty(t *testing.T) {
	t.Helper()
	entries, states := 0, 0
	for i := range shards {
		entries += len(c.index.demands[i].entries)
		states += len(c.index.states[i].entries)
	}
	if s := c.Stats(); entries != 0 || states != 0 || s.Entries != 0 || s.Bytes != 0 {
		t.Errorf("%d entries, %d states, %d counted entries, %d bytes are left",
			entries, states, s.Entries, s.Bytes)
	}
}

// TestLookup: which demands a cached refusal answers, and how.
func TestLookup(t *testing.T) {
	now := int64(1_000_000)
	c := New(serverstore.OpenOptions{Options: serverstore.Options{Now: func() int64 {
		return now
	}}})
	res := refusedFor(time.Second)
	res.Remaining = 2
	l := c.recheck(denied("k", 3))
	now += 400 // on the way
	c.fill(l, res)

	now += 600
	want := res
	want.Source, want.RetryAfter, want.ResetAfter = driver.SourceCache,
		res.RetryAfter-time.Millisecond, res.ResetAfter-time.Millisecond
	for _, n := range []int64{3, 4, driver.MaxUnits} {
		if got, ok := lookup(c, denied("k", n)); !ok || got != want {
			t.Errorf("%d units: %+v, %t; want %+v", n, got, ok, want)
		}
	}
	other, peek, raised := denied("other", 3), denied("k", 3), denied("k", 3)
	peek.Op, raised.Algorithm = driver.OpPeek, raisedLog
	for what, d := range map[string]driver.Demand{"fewer units": denied("k", 2),
		"other key": other, "peek": peek, "raised limit": raised} {
		if cached(c, d) {
			t.Errorf("%s: answered from the cache", what)
		}
	}
	c.wantStats(t, serverstore.CacheStats{Hits: 3, Stored: 1, Entries: 1})
}

// TestExpires: a refusal ends with its RetryAfter, counted from when the recheck was sent, with a
// clock that steps back, and at CacheAge.
func TestExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := int64(1_000_000)
		c := New(serverstore.OpenOptions{CacheAge: time.Minute,
			Options: serverstore.Options{Now: func() int64 { return now }}})
		refuse(c, denied("k", 1), time.Second)
		for _, tt := range []struct {
			at   int64
			want bool
		}{{999_999, false}, {1_000_000, true}, {1_999_999, true}, {2_000_000, false},
			{1_500_000, true}} {
			if now = tt.at; cached(c, denied("k", 1)) != tt.want {
				t.Errorf("at %d: answered from the cache %t", tt.at, !tt.want)
			}
		}
		time.Sleep(time.Minute - time.Nanosecond)
		if !cached(c, denied("k", 1)) {
			t.Error("too old before CacheAge")
		}
		time.Sleep(time.Nanosecond)
		if cached(c, denied("k", 1)) {
			t.Error("not too old at CacheAge")
		}
	})
	synctest.Test(t, func(t *testing.T) { // by the process's own clock
		c := New(serverstore.OpenOptions{})
		l := c.recheck(denied("k", 1))
		time.Sleep(100 * time.Millisecond)
		c.fill(l, refusedFor(time.Second))
		time.Sleep(900*time.Millisecond - time.Microsecond)
		if res, ok := lookup(c, denied("k", 1)); !ok || res.RetryAfter != time.Microsecond ||
			res.ResetAfter != time.Second+time.Microsecond {
			t.Errorf("%+v, %t", res, ok)
		}
		time.Sleep(time.Microsecond)
		if cached(c, denied("k", 1)) {
			t.Error("returned after its RetryAfter")
		}
		refuse(c, denied("k", 1), time.Hour)
		time.Sleep(defaultAge)
		if cached(c, denied("k", 1)) {
			t.Errorf("returned after %v", defaultAge)
		}
		if refuse(c, denied("k", 2), time.Hour); !cached(c, denied("k", 2)) {
			t.Error("a refusal that is too old keeps out one for more units")
		}
	})
}

// TestShortRetryAfter: a refusal that ends within four round trips is not worth a recheck, and one
// that ends within two round trips of the recheck is not cached.
func TestShortRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(serverstore.OpenOptions{})
		for _, tt := range []struct {
			key              string
			retry, later     time.Duration
			rechecks, cached bool
		}{
			{"short", 40*time.Millisecond - time.Microsecond, time.Hour, false, false},
			{"short at the recheck", 40 * time.Millisecond, 20*time.Millisecond - time.Microsecond,
				true, false},
			{"long", 40 * time.Millisecond, 20 * time.Millisecond, true, true},
		} {
			call := send(c, denied(tt.key, 1))
			time.Sleep(10 * time.Millisecond)
			l := call.reply(refusedFor(tt.retry))
			if l != nil != tt.rechecks {
				t.Fatalf("%s: rechecks %t", tt.key, !tt.rechecks)
			}
			if l != nil {
				time.Sleep(10 * time.Millisecond)
				c.fill(l, refusedFor(tt.later))
			}
			if cached(c, denied(tt.key, 1)) != tt.cached {
				t.Errorf("%s: cached %t", tt.key, !tt.cached)
			}
		}
		c.wantStats(t, serverstore.CacheStats{Hits: 1, Stored: 1, Entries: 1})
	})
}

// TestDiscarded: the result of a recheck is not cached if its entry was removed before it arrived.
func TestDiscarded(t *testing.T) {
	d := denied("k", 1)
	for what, change := range map[string]func(c *Cache){
		"reported by the server": func(c *Cache) { c.Invalidate("stored:k") },
		"flush":                  func(c *Cache) { c.Flush() },
		"own reset": func(c *Cache) {
			send(c, driver.Demand{Key: "k", Algorithm: denyLog,
				Op: driver.OpReset}).reply(driver.Result{Allowed: true})
		},
		"own admission":   func(c *Cache) { send(c, d).reply(driver.Result{Allowed: true}) },
		"unknown outcome": func(c *Cache) { call := send(c, d); c.Lose(call.groups) },
	} {
		t.Run(what, func(t *testing.T) {
			c := New(serverstore.OpenOptions{})
			before := c.recheck(d)
			change(c)
			after := c.recheck(d)
			if before == nil || after == nil {
				t.Fatal("no recheck")
			}
			c.fill(before, refusedFor(time.Hour))
			if s := c.Stats(); cached(c, d) || s.Stored != 0 || s.Discarded != 1 {
				t.Errorf("kept: %+v", s)
			}
			c.fill(after, refusedFor(time.Hour))
			if s := c.Stats(); !cached(c, d) || s.Stored != 1 || s.Discarded != 1 ||
				s.Entries != 1 {
				t.Errorf("the recheck after the change is not kept: %+v", s)
			}
			c.Flush()
			c.checkEmpty(t)
		})
	}
}

// TestFreeing: while a demand that may free units is in flight, no refusal of its state is cached,
// since other callers may see its effect.
func TestFreeing(t *testing.T) {
	d := denied("k", 1)
	for _, op := range []driver.Op{driver.OpReset, driver.OpSettle} {
		for what, end := range map[string]func(c *Cache, call *request){
			"answered": func(_ *Cache, call *request) {
				call.reply(driver.Result{Allowed: true})
			},
			"lost": func(c *Cache, call *request) { c.Lose(call.groups) },
		} {
			c := New(serverstore.OpenOptions{})
			freeing := send(c, driver.Demand{Key: "k", Algorithm: denyLog, Op: op, N: 1})
			refuse(c, d, time.Hour)
			if s := c.Stats(); cached(c, d) || s.Stored != 0 || s.Entries != 0 {
				t.Errorf("kept during a %v: %+v", op, s)
			}
			end(c, freeing)
			refuse(c, d, time.Hour)
			if !cached(c, d) {
				t.Errorf("not kept after a %v was %s", op, what)
			}
			c.Flush()
			c.checkEmpty(t)
			if n := len(c.index.byState("stored:k").freeing); n != 0 {
				t.Errorf("%d states are counted as being freed", n)
			}
		}
	}
}

// TestRemoves: what removes a cached refusal.
func TestRemoves(t *testing.T) {
	d := denied("k", 5)
	op := func(op driver.Op) driver.Demand {
		return driver.Demand{Key: "k", Algorithm: raisedLog, Op: op, N: 1}
	}
	admitted := driver.Result{Allowed: true}
	answered := func(d driver.Demand, res driver.Result) func(c *Cache) {
		return func(c *Cache) {
			if l := send(c, d).reply(res); l != nil {
				c.fill(l, res)
			}
		}
	}
	all := func(allowed ...bool) func(*Cache) {
		return func(c *Cache) {
			call := sendGroups(c, groupOf(denied("other", 1), op(driver.OpTake)))
			l := call.reply(driver.Result{Allowed: allowed[0]},
				driver.Result{Allowed: allowed[1]})
			if l != nil {
				c.Fill(l, true)
			}
		}
	}
	failed := func(d driver.Demand) func(*Cache) {
		return func(c *Cache) {
			call := send(c, d)
			call.groups[0].Err = driver.ErrCorruptState
			call.reply()
		}
	}
	for _, tt := range []struct {
		what string
		act  func(*Cache)
		kept bool
	}{
		{"nothing", func(*Cache) {}, true},
		{"reported by the server", func(c *Cache) { c.Invalidate("stored:k") }, false},
		{"another reported", func(c *Cache) { c.Invalidate("stored:k2") }, true},
		{"holds reported", func(c *Cache) { c.Invalidate("stored:k:h") }, false},
		{"holds of another reported", func(c *Cache) { c.Invalidate("stored:k2:h") }, true},
		{"settlement sent", func(c *Cache) { send(c, op(driver.OpSettle)) }, false},
		{"hold", answered(op(driver.OpHold), admitted), false},
		{"refused hold", answered(op(driver.OpHold), refusedFor(time.Hour)), true},
		{"flush", (*Cache).Flush, false},
		{"close", (*Cache).Close, false},
		{"reset sent", func(c *Cache) { send(c, op(driver.OpReset)) }, false},
		{"force", answered(op(driver.OpForce), admitted), false},
		{"peek", answered(op(driver.OpPeek), admitted), true},
		{"admission under another limit", answered(op(driver.OpTake), admitted), false},
		{"admission of another key", answered(denied("k2", 1), admitted), true},
		{"refusal under another limit",
			answered(op(driver.OpTake), refusedFor(time.Hour)), true},
		{"TakeAll admitted", all(true, true), false},
		{"TakeAll refused", all(false, true), true},
		{"answer lost", func(c *Cache) { c.Lose(send(c, op(driver.OpTake)).groups) }, false},
		{"TakeAll lost", func(c *Cache) {
			c.Lose(sendGroups(c, groupOf(denied("other", 1), op(driver.OpTake))).groups)
		}, false},
		{"peek lost", func(c *Cache) { c.Lose(send(c, op(driver.OpPeek)).groups) }, false},
		{"corrupt state", failed(op(driver.OpTake)), false},
		{"refusal that wrote", func(c *Cache) {
			call := send(c, op(driver.OpTake))
			call.groups[0].Wrote = true
			call.reply(refusedFor(time.Hour))
		}, false},
		{"recheck that wrote", func(c *Cache) {
			l := send(c, denied("other", 1), op(driver.OpTake)).reply(refusedFor(time.Hour),
				refusedFor(time.Hour))
			l.Groups[1].Wrote = true
			c.fill(l, refusedFor(time.Hour), refusedFor(time.Hour))
			if !cached(c, denied("other", 1)) {
				t.Error("the refusal that did not write is not cached")
			}
			if cached(c, op(driver.OpTake)) {
				t.Error("the refusal that wrote is cached")
			}
		}, false},
		{"recheck lost", func(c *Cache) {
			c.Fill(send(c, op(driver.OpTake)).reply(refusedFor(time.Hour)), false)
		}, false},
		{"recheck that failed", func(c *Cache) {
			l := send(c, op(driver.OpTake)).reply(refusedFor(time.Hour))
			l.Groups[0].Err = driver.ErrCorruptState
			c.fill(l)
		}, false},
		{"recheck that found room", func(c *Cache) {
			c.fill(send(c, op(driver.OpTake)).reply(refusedFor(time.Hour)), admitted)
		}, true},
	} {
		t.Run(tt.what, func(t *testing.T) {
			c := New(serverstore.OpenOptions{})
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

// TestReplaces: of two refusals of one demand the newer one stays, unless it is for as many units
// or more and the older one still holds.
func TestReplaces(t *testing.T) {
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
		{"equal", answer{3, 0, time.Second}, answer{3, 10, time.Minute}, 3, 1},
		{"fewer units", answer{3, 0, time.Minute}, answer{1, 10, time.Second}, 1, 2},
		{"more units", answer{3, 0, time.Second}, answer{5, 10, time.Minute}, 3, 1},
		{"more units, when the older has run out", answer{3, 0, time.Second},
			answer{5, 1_000_000, time.Minute}, 5, 2},
		{"more units, just before",
			answer{3, 0, time.Second}, answer{5, 999_999, time.Minute}, 3, 1},
		{"more units, after the clock stepped back", answer{3, 0, time.Second},
			answer{5, -1, time.Minute}, 5, 2},
	} {
		t.Run(tt.what, func(t *testing.T) {
			now := int64(1_000_000)
			c := New(serverstore.OpenOptions{Options: serverstore.Options{Now: func() int64 {
				return now
			}}})
			refuse(c, denied("k", tt.first.n), tt.first.retry)
			now += tt.second.after
			refuse(c, denied("k", tt.second.n), tt.second.retry)
			if s := c.Stats(); s.Stored != tt.stored || s.Entries != 1 {
				t.Errorf("%+v", s)
			}
			if !cached(c, denied("k", tt.least)) || tt.least > 1 &&
				cached(c, denied("k", tt.least-1)) {
				t.Errorf("it does not answer from %d units on", tt.least)
			}
		})
	}
}

// TestSeveral: which TakeAll a cached refusal of several demands answers, how, and for how long.
func TestSeveral(t *testing.T) {
	ds := func(n, m int64) []driver.Demand {
		return []driver.Demand{denied("k", n), other("k", m)}
	}
	synctest.Test(t, func(t *testing.T) {
		c := New(serverstore.OpenOptions{CacheAge: time.Hour})
		refused, free := refusedFor(time.Second), driver.Result{
			Allowed: true, Limit: driver.Limit{Max: 100}, Remaining: 7,
			ResetAfter: 2 * time.Millisecond}
		c.fill(sendGroups(c, groupOf(ds(3, 4)...)).reply(refused, free), refused, free)
		time.Sleep(3 * time.Millisecond)
		out := make([]driver.Result, 2)
		for _, ds := range [][]driver.Demand{ds(3, 4), ds(5, 4), ds(3, 1)} {
			clear(out)
			if !c.Lookup(ds, out) {
				t.Fatalf("no answer to %v", ds)
			}
			wants := []driver.Result{refused, free}
			wants[0].Source, wants[1].Source = driver.SourceCache, driver.SourceCache
			wants[0].RetryAfter -= 3 * time.Millisecond
			wants[0].ResetAfter -= 3 * time.Millisecond
			wants[1].ResetAfter = 0
			if !slices.Equal(out, wants) {
				t.Errorf("%+v, want %+v", out, wants)
			}
		}
		peek := ds(3, 4)
		peek[1].Op = driver.OpPeek
		another := ds(3, 4)
		another[1].Key = "k2"
		reversed := ds(3, 4)
		slices.Reverse(reversed)
		for what, ds := range map[string][]driver.Demand{
			"fewer units of the refused": ds(2, 4), "more units of the other": ds(3, 5),
			"a peek": peek, "another key": another, "another order": reversed,
			"the first alone": ds(3, 4)[:1], "the second alone": ds(3, 4)[1:],
			"one more": append(ds(3, 4), denied("k3", 1)),
		} {
			if cached(c, ds...) {
				t.Errorf("%s: answered from the cache", what)
			}
		}
		c.wantStats(t, serverstore.CacheStats{Hits: 3, Stored: 1, Entries: 1})
		for _, state := range []string{"stored:k", "stored:kother"} {
			c.fill(sendGroups(c, groupOf(ds(2, 4)...)).reply(refused, free), refused, free)
			if !cached(c, ds(2, 4)...) {
				t.Fatal("not cached")
			}
			if c.Invalidate(state); cached(c, ds(2, 4)...) {
				t.Errorf("kept after a change of %s", state)
			}
			c.checkEmpty(t)
		}
		// Both are refused: it ends with the first of them.
		later := refusedFor(time.Minute)
		c.fill(sendGroups(c, groupOf(ds(1, 1)...)).reply(later, refused), later, refused)
		if time.Sleep(time.Second - time.Microsecond); !cached(c, ds(1, 1)...) {
			t.Error("not returned before the earliest RetryAfter")
		}
		if time.Sleep(time.Microsecond); cached(c, ds(1, 1)...) {
			t.Error("returned after the earliest RetryAfter")
		}
		// A demand that frees units of either is in flight.
		for i := range 2 {
			free := ds(1, 1)[i]
			free.Op = driver.OpReset
			freeing := send(c, free)
			if l := sendGroups(c, groupOf(ds(1, 1)...)).reply(later, later); l != nil {
				t.Errorf("a recheck while demand %d is reset", i)
			}
			freeing.reply(driver.Result{Allowed: true})
		}
		c.checkEmpty(t)
	})
}

// TestRechecks: one recheck at a time for one demand, none for what the cache answers already, and
// no more than maxRechecks in all.
func TestRechecks(t *testing.T) {
	c := New(serverstore.OpenOptions{})
	first := c.recheck(denied("k", 3))
	if l := c.recheck(denied("k", 1)); first == nil || l != nil {
		t.Fatal("two rechecks of a demand")
	}
	sent := send(c, denied("k", 4))
	c.fill(first, refusedFor(time.Hour))
	if sent.reply(refusedFor(time.Hour)) != nil {
		t.Error("a recheck of what is cached")
	}
	mixed := groupOf(denied("a", 1), denied("b", 1))
	mixed.Demands[1].Op = driver.OpForce
	if sendGroups(c, mixed).reply(refusedFor(time.Hour)) != nil {
		t.Error("a recheck of more than takes")
	}
	several := send(c, denied("a", 1), denied("k", 5), denied("b", 1)).reply(refusedFor(time.Hour),
		refusedFor(time.Hour), driver.Result{Allowed: true})
	if several == nil || len(several.Groups) != 1 || several.Groups[0].Demands[0] !=
		(driver.Demand{Key: "a", Algorithm: denyLog, Op: driver.OpPeek, N: 1}) {
		t.Fatalf("%+v", several)
	}
	rechecks := []*Recheck{several}
	for i := range 2 * maxRechecks {
		if l := c.recheck(denied(fmt.Sprint(i), 1)); l != nil {
			rechecks = append(rechecks, l)
		}
	}
	if len(rechecks) != maxRechecks {
		t.Errorf("%d rechecks in flight", len(rechecks))
	}
	for _, l := range rechecks {
		c.Fill(l, false)
	}
	if c.recheck(denied("k", 1)) == nil || c.rechecks.Load() != 1 {
		t.Errorf("%d rechecks are counted as in flight", c.rechecks.Load())
	}
}

// TestCacheBounds: the bounds hold, entries are evicted for others, and those with a request in
// flight are not.
func TestCacheBounds(t *testing.T) {
	size := func(key string) int64 {
		return (&entry{members: []member{{key: key, storedKey: "stored:" + key}}}).size()
	}
	for _, tt := range []struct {
		what string
		opts serverstore.OpenOptions
		room int
	}{
		{"entries", serverstore.OpenOptions{CacheEntries: 100}, 100},
		{"one entry", serverstore.OpenOptions{CacheEntries: 1}, 1},
		{"bytes", serverstore.OpenOptions{CacheBytes: int(50*size("k0000") + 1)}, 50},
		{"no room at all", serverstore.OpenOptions{CacheBytes: int(size("k0000") - 1)}, 0},
	} {
		t.Run(tt.what, func(t *testing.T) {
			c := New(tt.opts)
			for i := range 1000 {
				d := denied(fmt.Sprintf("k%04d", i), 1)
				refuse(c, d, time.Hour)
				if cached(c, d) != (tt.room > 0) {
					t.Fatalf("refusal %d: cached %t", i, tt.room == 0)
				}
				if s := c.Stats(); s.Entries != int64(min(i+1, tt.room)) ||
					s.Bytes != s.Entries*size("k0000") {
					t.Fatalf("after %d refusals: %+v", i+1, s)
				}
			}
			c.Flush()
			c.checkEmpty(t)
		})
	}
	t.Run("all in flight", func(t *testing.T) {
		c := New(serverstore.OpenOptions{CacheEntries: 3})
		hour := refusedFor(time.Hour)
		l := send(c, denied("a", 1), denied("b", 1), denied("c", 1)).reply(hour, hour, hour)
		if c.recheck(denied("late", 1)) != nil {
			t.Error("an entry was evicted while its recheck was in flight")
		}
		c.fill(l, hour, hour, hour)
		if !cached(c, denied("a", 1)) || !cached(c, denied("b", 1)) || !cached(c, denied("c", 1)) {
			t.Error("not cached")
		}
		refuse(c, denied("late", 1), time.Hour)
		if s := c.Stats(); !cached(c, denied("late", 1)) || s.Entries != 3 {
			t.Errorf("nothing was evicted: %+v", s)
		}
	})
	t.Run("a key that never fits", func(t *testing.T) {
		c := New(serverstore.OpenOptions{CacheBytes: 10_000})
		refuse(c, denied("k", 1), time.Hour)
		long := denied(string(make([]byte, 10_000)), 1)
		refuse(c, long, time.Hour)
		if cached(c, long) || !cached(c, denied("k", 1)) {
			t.Error("others were evicted for nothing")
		}
	})
}

// TestLeavesNothing: rechecks without a refusal leave no entry behind.
func TestLeavesNothing(t *testing.T) {
	c := New(serverstore.OpenOptions{})
	d := denied("k", 1)
	c.fill(c.recheck(d), refusedFor(0)) // too short
	c.checkEmpty(t)
	c.fill(c.recheck(d), driver.Result{Allowed: true})
	c.checkEmpty(t)
	c.Fill(c.recheck(d), false)
	c.checkEmpty(t)
	raised := denied("k", 1)
	raised.Algorithm = raisedLog
	refuse(c, raised, time.Hour) // another entry of the same state
	c.fill(c.recheck(d), refusedFor(0))
	c.wantStats(t, serverstore.CacheStats{Stored: 1, Entries: 1})
	if !cached(c, raised) {
		t.Error("the other entry was removed too")
	}
	c.Invalidate("stored:k")
	c.checkEmpty(t)
	l := c.recheck(d)
	l.Groups[0].Err = errors.New("corrupt")
	c.fill(l)
	c.checkEmpty(t)
}

// TestClosed: a closed cache returns nothing and stores nothing.
func TestClosed(t *testing.T) {
	c := New(serverstore.OpenOptions{})
	refuse(c, denied("k", 1), time.Hour)
	l := c.recheck(denied("other", 1))
	c.Close()
	c.fill(l, refusedFor(time.Hour))
	refuse(c, denied("k", 1), time.Hour)
	if cached(c, denied("k", 1)) || cached(c, denied("other", 1)) {
		t.Error("a closed cache answers")
	}
	c.Close()
	c.checkEmpty(t)
}

// TestNil: a store without a cache can use a nil one.
func TestNil(t *testing.T) {
	var c *Cache
	refuse(c, denied("k", 1), time.Hour)
	c.Lose(send(c, denied("k", 1)).groups)
	c.Close()
	if cached(c, denied("k", 1)) || c.Stats() != (serverstore.CacheStats{}) {
		t.Error("it keeps something")
	}
}

// TestRaces plays a server whose states change while rechecks are in flight, at one state or at
// two. A state has a version, which a refusal has in Remaining: once the server has reported a
// change, no refusal from before may be returned. Bounds hold at every moment, and in the end
// nothing is left.
func TestRaces(t *testing.T) {
	const keys, rounds = 40, 4000
	c := New(serverstore.OpenOptions{CacheEntries: 30})
	var version, told [keys]atomic.Int64
	var wg sync.WaitGroup
	for worker := range uint64(8) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(worker, 1))
			out := make([]driver.Result, 2)
			for range rounds {
				of := []int{r.IntN(keys), 0}[:1+r.IntN(2)]
				if len(of) == 2 {
					of[1] = (of[0] + 1 + r.IntN(2)) % keys
				}
				var ds []driver.Demand
				var before []int64
				a := denyLog
				if r.IntN(4) == 0 {
					a = raisedLog
				}
				for _, k := range of {
					ds = append(ds, driver.Demand{
						Key: fmt.Sprint(k), Algorithm: a, N: r.Int64N(3) + 1})
					before = append(before, told[k].Load())
				}
				if c.Lookup(ds, out[:len(ds)]) {
					for i := range ds {
						if out[i].Remaining < before[i] {
							t.Errorf("a refusal of version %d was returned when %d had been "+
								"reported", out[i].Remaining, before[i])
							return
						}
					}
					continue
				}
				decide := func() (results []driver.Result) {
					admitted := r.IntN(50) == 0
					for _, k := range of {
						res := refusedFor(time.Hour)
						res.Remaining, res.Allowed = version[k].Load(), admitted
						results = append(results, res)
					}
					return results
				}
				call := sendGroups(c, groupOf(ds...))
				if r.IntN(50) == 0 {
					c.Lose(call.groups)
					continue
				}
				if l := call.reply(decide()...); l != nil {
					if r.IntN(50) == 0 {
						c.Fill(l, false)
					} else {
						c.fill(l, decide()...)
					}
				}
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
	if s := c.Stats(); s.Hits == 0 || s.Stored == 0 || s.Discarded == 0 || c.rechecks.Load() != 0 {
		t.Errorf("%+v: this test proves nothing", s)
	}
	c.Flush()
	c.checkEmpty(t)
}

// TestClosedMeanwhile closes a cache while a recheck begins: nothing stays behind.
func TestClosedMeanwhile(t *testing.T) {
	for range 5000 {
		c := New(serverstore.OpenOptions{})
		var start, done sync.WaitGroup
		start.Add(2)
		for _, act := range []func(){func() { c.recheck(denied("k", 1)) }, c.Close} {
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

// TestAddWithin: concurrent additions keep the bound.
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

// TestLookupAllocatesNothing: a refused caller costs no allocation.
func TestLookupAllocatesNothing(t *testing.T) {
	c := New(serverstore.OpenOptions{})
	one, two := []driver.Demand{denied("k", 1)},
		[]driver.Demand{denied("k", 1), other("k", 1)}
	refuse(c, one[0], time.Hour)
	hour := refusedFor(time.Hour)
	c.fill(sendGroups(c, groupOf(two...)).reply(hour, hour), hour, hour)
	out := make([]driver.Result, 2)
	for what, ds := range map[string][]driver.Demand{
		"hit": one, "miss": {denied("other", 1)}, "two": two, "miss of two": {two[1], two[0]},
	} {
		if n := testing.AllocsPerRun(100, func() { c.Lookup(ds, out[:len(ds)]) }); n != 0 {
			t.Errorf("%s: %v allocations", what, n)
		}
	}
	if s := c.Stats(); s.Hits == 0 || s.Entries != 2 {
		t.Errorf("%+v: this test proves nothing", s)
	}
}

// FuzzInvalidate has a server report changes of any states: what it names is removed, nothing else
// is, and the bounds hold.
func FuzzInvalidate(f *testing.F) {
	f.Add("abcabc", []byte("stored:a"), uint8(0))
	f.Add("abcdefgh", []byte("stored:"), uint8(3))
	f.Add("\x00\xff", []byte{}, uint8(1))
	f.Add("aa", []byte("rl:{=a}:1h0m0s:log3"), uint8(255))
	f.Fuzz(func(t *testing.T, keys string, told []byte, bound uint8) {
		c := New(serverstore.OpenOptions{CacheEntries: 1 + int(bound)})
		for i := range len(keys) {
			refuse(c, denied(keys[i:i+1], 1), time.Hour)
		}
		was := make(map[string]bool)
		for i := range len(keys) {
			was[keys[i:i+1]] = cached(c, denied(keys[i:i+1], 1))
		}
		c.Invalidate(string(told))
		for key := range was {
			if now, want := cached(c, denied(key, 1)), was[key] &&
				"stored:"+key != string(told); now != want {
				t.Fatalf("%q is cached: %t, after %q", key, now, told)
			}
		}
		if s := c.Stats(); s.Entries > 1+int64(bound) || s.Invalidations != 1 {
			t.Fatalf("%+v", s)
		}
		c.Flush()
		c.checkEmpty(t)
	})
}

func BenchmarkLookup(b *testing.B) {
	c := New(serverstore.OpenOptions{CacheAge: time.Hour})
	refuse(c, denied("hit", 1), time.Hour)
	two := []driver.Demand{denied("hit", 1), other("hit", 1)}
	hour := refusedFor(time.Hour)
	c.fill(sendGroups(c, groupOf(two...)).reply(hour, hour), hour, hour)
	for _, tt := range []struct {
		name string
		ds   []driver.Demand
	}{{"hit", two[:1]}, {"two", two}, {"miss", []driver.Demand{denied("miss", 1)}}} {
		b.Run(tt.name, func(b *testing.B) {
			b.ReportAllocs()
			out := make([]driver.Result, len(tt.ds))
			for b.Loop() {
				c.Lookup(tt.ds, out)
			}
		})
		b.Run(tt.name+"/goroutines=64", func(b *testing.B) {
			b.ReportAllocs()
			var wg sync.WaitGroup
			for range 64 {
				wg.Go(func() {
					out := make([]driver.Result, len(tt.ds))
					for range b.N / 64 {
						c.Lookup(tt.ds, out)
					}
				})
			}
			wg.Wait()
		})
	}
}
